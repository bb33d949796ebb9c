"""From a record to its holders while a compaction follows: latency, bursts, what idling costs."""

import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import median, quantiles

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from bench import kafka
from bench.endurance import Samples, beside, by_minute, draw, growth, tree
from bench.increments import position_records
from bench.ours import SHARDPOST, Ours
from bench.peer import DEFAULTS, Application, Peer
from shardpost.embedded.daemons import wait_until
from shardpost.kafka import offsets
from shardpost.settings import Settings
from tests.support.installed import installed

# New positions have ids from here on, so that each says by itself which record it came by.
FIRST_ID = 1_000_000_000
DEADLINE = 300.0


@dataclass(frozen=True)
class Load:
    """So many positions are there; then records come at a rate (a second) for so many seconds.

    After that `bursts` bursts of `burst` records, and `idle` seconds in which nothing comes.
    """

    positions: int
    rate: int
    seconds: int
    burst: int
    bursts: int
    idle: int


@dataclass
class Arrivals:
    """When each position was first seen in the topic of the holders, in seconds since 1970."""

    settings: Settings
    topic: str
    at: dict[int, float] = field(default_factory=dict)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read what comes to the topic from now on."""
        more = {"group.id": "bench-live", "isolation.level": "read_committed"}
        reader = Consumer(installed(self.settings).kafka.config(**more))
        counts = {self.topic: kafka.PARTITIONS}
        marks = offsets.watermarks(installed(self.settings).kafka, counts, committed=False)[
            self.topic
        ]
        reader.assign([TopicPartition(self.topic, n, end) for n, (_, end) in marks.items()])
        with closing(reader), beside(partial(self._read, reader)):
            yield

    def _read(self, reader: Consumer, ended: threading.Event) -> None:
        while not ended.is_set():
            for message in reader.consume(1000, 0.1):
                now = time.time()
                for id_ in kafka.ids_of(message.value()):
                    if id_ >= FIRST_ID:
                        self.at.setdefault(id_, now)


@dataclass(frozen=True)
class Follower:
    """Who follows: the command that stays, its variables, and the topic of its results."""

    name: str
    command: list[str]
    environ: dict[str, str]
    output: str
    log: Path
    tables: Path


def measure(settings: Settings, peer_folder: Path | None, load: Load, picture: Path | None) -> None:
    """Measure a compaction that follows, then the peer on the same topic; print the latencies.

    With a `picture`, draw its latency, memory and files over the time of the load.
    """
    topic = f"live-{load.positions}"
    kafka.delete(settings, [topic])
    kafka.create(settings, topic)
    print(f"putting {load.positions:,} positions into {topic}", flush=True)
    kafka.produce(settings, topic, position_records(range(load.positions)))
    source = _Source(settings, topic, load.positions)
    ours = Ours(settings, f"ours-{topic}", topic)
    ours.reset()
    print(f"from nothing: {ours.compact().seconds:.1f} s", flush=True)
    own = {**os.environ, **ours.settings.environ()}
    follow = [str(SHARDPOST), "compact", "--follow"]
    log = ours.settings.home / "follow.log"
    output = ours.settings.topic("share-holders")
    tables = ours.settings.home / "tables"
    follower = Follower("Shardpost", follow, own, output, log, tables)
    _measure(settings, follower, source, load, picture)
    print(_turns(log))
    if there := Peer.found(peer_folder, settings):
        app = Application(there, "live", topic, DEFAULTS)
        app.reset()
        print(f"the peer from nothing: {app.catch_up().seconds:.1f} s", flush=True)
        log = settings.home / "peer.log"
        environ, state = {**os.environ}, settings.home / "peer"
        peer = Follower("Kafka Streams, defaults", app.stay, environ, app.output, log, state)
        _measure(settings, peer, source, load)


def _measure(
    settings: Settings, one: Follower, source: "_Source", load: Load, picture: Path | None = None
) -> None:
    print(one.name, flush=True)
    arrivals = Arrivals(settings, one.output)
    with _running(one) as process, arrivals.reading():
        first = source.next
        source.send(100)  # the first turn of a driver is its slowest
        _wait(arrivals, source, first)
        print(f"  idle: {_idle(process, load.idle)}", flush=True)
        first, samples = source.next, Samples(process, one.tables)
        with beside(samples.take):
            for _ in range(load.seconds):
                source.send(load.rate, seconds=1.0)
            seconds = _wait(arrivals, source, first)
        _print(f"{load.rate:,} records a second", seconds)
        if picture:
            sent = {id_: source.sent[id_] for id_ in range(first, source.next)}
            _draw(picture, samples, arrivals, sent)
        bursts = []
        for _ in range(load.bursts):
            first = source.next
            source.send(load.burst)
            bursts.append(max(_wait(arrivals, source, first)))
        _print(f"bursts of {load.burst:,}, the last of each", bursts)
        print(f"  {_memory(process)}", flush=True)


def _draw(picture: Path, samples: Samples, arrivals: Arrivals, sent: Mapping[int, float]) -> None:
    picture.write_text(draw(samples.found, by_minute(sent, arrivals.at)))
    memory, files = (growth(samples.found, attrgetter(of)) for of in ("memory", "files"))
    print(f"  drawn: {picture}; growth an hour: {memory:.0f} MiB in memory, {files:.0f} files")


class _Source:
    """What sends new positions, each of a client that is there, and knows when it sent them."""

    def __init__(self, settings: Settings, topic: str, positions: int) -> None:
        self._producer = Producer(installed(settings).kafka.config(**kafka.FAST))
        self._topic, self._positions = topic, positions
        self._draw = random.Random(positions)  # noqa: S311 - the same stream each time
        self.next, self.sent = FIRST_ID, dict[int, float]()

    def send(self, count: int, seconds: float = 0.0) -> None:
        """Send so many, spread over so many seconds."""
        began = time.monotonic()
        for number in range(count):
            if (ahead := began + seconds * number / count - time.monotonic()) > 0:
                self._producer.poll(ahead)
            client = self._draw.randrange(self._positions)
            [(key, value, _)] = position_records([client], as_ids=[self.next])
            self.sent[self.next] = now = time.time()
            self._producer.produce(self._topic, value, key, timestamp=int(now * 1000))
            self.next += 1
        self._producer.flush(DEADLINE)


@contextmanager
def _running(one: Follower) -> Iterator[psutil.Process]:
    with one.log.open("wb") as log:
        process = subprocess.Popen(
            one.command,
            env=one.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def _wait(arrivals: Arrivals, source: _Source, first: int) -> list[float]:
    """Wait for all that was sent from that id on; return how long each took."""
    ids = range(first, source.next)
    wait_until(lambda: all(id_ in arrivals.at for id_ in ids), "records are missing", DEADLINE)
    return [arrivals.at[id_] - source.sent[id_] for id_ in ids]


def _print(what: str, seconds: Sequence[float]) -> None:
    last = quantiles(seconds, n=100, method="inclusive")[98] if len(seconds) > 1 else seconds[0]
    print(f"  {what}: p50 {median(seconds):.2f} s, p99 {last:.2f} s, most {max(seconds):.2f} s")


def _idle(process: psutil.Process, seconds: int) -> str:
    """Return what all its processes take while nothing comes, of one core."""

    def used() -> float:
        return sum(sum(one.cpu_times()[:2]) for one in tree(process))

    before = used()
    time.sleep(seconds)
    return f"{100 * (used() - before) / seconds:.1f} % of one core, {_memory(process)}"


def _memory(process: psutil.Process) -> str:
    sizes = {f"{one.name()} {one.pid}": one.memory_info().rss >> 20 for one in tree(process)}
    return f"{sum(sizes.values())} MiB ({', '.join(f'{k} {v}' for k, v in sizes.items())})"


def _turns(log: Path) -> str:
    """Return the steps of the last turn, with the time at which each began."""
    lines = [line for line in log.read_text().splitlines() if " step: " in line]
    last = max(at for at, line in enumerate(lines) if line.endswith("step: publish"))
    first = max(at for at, line in enumerate(lines[:last]) if line.endswith("step: turn"))
    return "\n".join(lines[first : last + 12])
