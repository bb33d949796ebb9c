"""Who holds, from nothing, on one worker of a Spark cluster and on more: what divides, what not."""

from collections.abc import Mapping, Sequence
from statistics import median

from bench import kafka, stream
from bench.ours import Ours, steps
from shardpost.settings import Settings

PROPERTIES = """\
spark.cores.max {workers}
spark.executor.cores 1
spark.executor.memory 1500m
"""


def measure(settings: Settings, records: int, workers: Sequence[int], runs: int) -> None:
    """Compact the same records with so many workers of one core, in turn; print what divides.

    `settings` name the Spark master. Every result is held against the plain fold.
    """
    topic = f"workers-{records}"
    kafka.delete(settings, [topic])
    kafka.create(settings, topic)
    print(f"putting {records:,} records into {topic}", flush=True)
    kafka.produce(settings, topic, stream.records(records))
    expected = stream.holders(stream.records(records))
    found: dict[int, list[Mapping[str, float]]] = {count: [] for count in workers}
    for number in range(runs):
        for count, seconds in found.items():
            print(f"{count} workers, run {number + 1} of {runs}", flush=True)
            seconds.append(_compacted(settings, topic, count, expected))
    _print({count: _medians(seconds) for count, seconds in found.items()})


def _compacted(
    settings: Settings, topic: str, workers: int, expected: dict[str, list[int]]
) -> Mapping[str, float]:
    """Compact from nothing with so many workers; return the seconds of each step, and of all."""
    file = settings.folder() / f"workers-{workers}.conf"
    file.write_text(PROPERTIES.format(workers=workers))
    own = settings.model_copy(update={"spark_conf": file})
    ours = Ours(own, f"ours-{topic}", topic)
    ours.reset()
    done = ours.compact()
    if kafka.latest(settings, ours.settings.topic("share-holders")) != expected:
        raise RuntimeError(f"{workers} workers: holders differ from the plain fold")
    parts = dict(steps(done.log))
    return parts | {"start, end": done.seconds - sum(parts.values()), "all": done.seconds}


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(run[name] for run in runs) for name in runs[0]}


def _print(found: Mapping[int, Mapping[str, float]]) -> None:
    first, *others = found
    print(f"\n| step | {first} worker, s |" + "".join(f" {n} workers, s | ratio |" for n in others))
    print("| --- |" + " --- |" * (1 + 2 * len(others)))
    for name, alone in found[first].items():
        cells = (f" {found[n][name]:.1f} | {found[n][name] / alone:.2f} |" for n in others)
        print(f"| {name} | {alone:.1f} |" + "".join(cells))
