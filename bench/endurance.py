"""What an hour of following costs: memory, files and latency over time, and their curves."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from statistics import linear_regression, quantiles

import matplotlib as mpl
import psutil
from matplotlib.figure import Figure

INCHES = (8, 7)
SAMPLE_SECONDS = 10.0
MINUTE = 60.0


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Have work done beside this block; the event at its end ends it."""
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def tree(root: psutil.Process) -> list[psutil.Process]:
    """Return a process and all below it."""
    return [root, *root.children(recursive=True)]


@dataclass(frozen=True)
class Sample:
    """How much there was so many seconds after the start: MiB in memory, files, MiB on disk."""

    at: float
    memory: float
    files: int
    disk: float


@dataclass
class Samples:
    """Samples of the processes below one, and of the folder of its tables."""

    process: psutil.Process
    folder: Path
    found: list[Sample] = field(default_factory=list)

    def take(self, ended: threading.Event) -> None:
        """Take one now and then, until that event."""
        began = time.monotonic()
        while not ended.wait(SAMPLE_SECONDS):
            self.found.append(self._sample(time.monotonic() - began))

    def _sample(self, at: float) -> Sample:
        memory = sum(one.memory_info().rss for one in tree(self.process))
        sizes = [*_sizes(self.folder)]
        return Sample(at, memory / (1 << 20), len(sizes), sum(sizes) / (1 << 20))


def _sizes(folder: Path) -> Iterator[int]:
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                yield path.stat().st_size
        except FileNotFoundError:  # merged meanwhile
            continue


def by_minute(
    sent: Mapping[int, float], seen: Mapping[int, float]
) -> list[tuple[float, float, float]]:
    """Return (minute, p50, p99) of the seconds from one to the other, by when they were sent."""
    began = min(sent.values())
    minutes: dict[int, list[float]] = {}
    for id_, at in sent.items():
        minutes.setdefault(int((at - began) // MINUTE), []).append(seen[id_] - at)
    found = []
    for minute, seconds in sorted(minutes.items()):
        if len(seconds) > 1:
            cut = quantiles(seconds, n=100)
            found.append((minute + 0.5, cut[49], cut[98]))
    return found


def growth(samples: Sequence[Sample], of: Callable[[Sample], float]) -> float:
    """Return by how much it grows in an hour, by a straight line through the second half."""
    half = samples[len(samples) // 2 :]
    return 3600 * linear_regression([one.at for one in half], [of(one) for one in half]).slope


def draw(samples: Sequence[Sample], latencies: Sequence[tuple[float, float, float]]) -> str:
    """Return the curves as an SVG document, one below the other, by minutes."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "shardpost"}):
        figure = Figure(figsize=INCHES, layout="constrained")
        upper, middle, lower = figure.subplots(3, sharex=True)
        minutes = [one.at / MINUTE for one in samples]
        at, half, most = zip(*latencies, strict=True)
        upper.plot(at, half, label="p50")
        upper.plot(at, most, label="p99")
        upper.set_ylabel("seconds to the holders")
        upper.legend(frameon=False)
        middle.plot(minutes, [one.memory for one in samples])
        middle.set_ylabel("MiB in memory")
        lower.plot(minutes, [one.files for one in samples])
        lower.set_ylabel("files")
        lower.set_xlabel("minutes")
        for axes in (upper, middle, lower):
            axes.set_ylim(bottom=0)
            axes.grid(color="#dddddd")
        svg = StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
    return svg.getvalue()
