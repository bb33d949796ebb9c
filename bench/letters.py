"""Sweeps of many letters, beside a bare transactional producer that writes the same records."""

import os
import shutil
import sys
import time
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer

from bench import kafka
from bench.letter_stream import PARTITIONS, letters
from bench.measured import Measured, run
from bench.ours import SHARDPOST
from bench.table import Case, markdown
from shardpost.adapters import topics
from shardpost.adapters.kafka import client_config, read_to_end
from shardpost.adapters.messages import headers_of
from shardpost.domain.dealing import as_text
from shardpost.domain.letters import ATTEMPT, ID
from shardpost.domain.topics import DECLARED, OF_LETTERS
from shardpost.settings import CHECKOUT, Settings

DUE, LATER = timedelta(hours=-1), timedelta(hours=1)
FEW = 1_000


def measure(settings: Settings, count: int, runs: int) -> None:
    """Measure all in turn, so many times, check every result, and print the table."""
    ours = _own(settings)
    bare = Case("bare transactional producer: the same records, the same batches", count)
    due = Case(f"sweep, {count:,} due", count)
    empty = Case("sweep, nothing there", 1)
    again = Case("sweep again: all was dealt with", 1)
    few = Case(f"sweep, {count:,} waiting and {FEW:,} due", FEW)
    raw = Case("floor: a plain consumer reads that store", count + FEW)
    for _ in range(runs):
        _reset(ours)
        empty.add(_sweep(ours))
        _put(ours, 0, count, DUE)
        bare.add(_bare(ours, count))
        due.add(_sweep(ours))
        _check(ours, count)
        again.add(_sweep(ours))
        _reset(ours)
        _put(ours, 0, count, LATER)
        print("  the first sweep of what waits, which fills the table:", flush=True)
        print(f"  {_sweep(ours).seconds:.1f} s", flush=True)
        _put(ours, count, count + FEW, DUE)
        few.add(_sweep(ours))
        _check(ours, FEW)
        began = time.perf_counter()
        kafka.read_raw(ours, ours.topic_dead_letters)
        raw.add(Measured(time.perf_counter() - began, {}, ""))
    rows = [bare.cells([bare]), due.cells([bare]), again.cells([empty]), empty.cells([empty])]
    print("\n" + markdown([*rows, few.cells([empty]), raw.cells([])]))


def _own(settings: Settings) -> Settings:
    names = {f"topic_{spec.name.replace('-', '_')}": f"bench-{spec.name}" for spec in DECLARED}
    home = settings.home / "letters"
    more = {"bootstrap_servers": settings.bootstrap, "partitions": PARTITIONS}
    return settings.model_copy(update={"home": home, **more, **names})


def _reset(settings: Settings) -> None:
    """Start from nothing: no table, empty topics."""
    shutil.rmtree(settings.home, ignore_errors=True)
    settings.home.mkdir(parents=True)
    own = [settings.topic(spec.name) for spec in OF_LETTERS]
    kafka.delete(settings, [*own, *(f"{name}-bare" for name in own)])
    topics.apply(settings)
    for name in own[:2]:
        kafka.create(settings, f"{name}-bare")


def _put(settings: Settings, first: int, until: int, when: timedelta) -> None:
    producer = Producer(client_config(settings, **kafka.FAST))
    failed_at = datetime.now(UTC) + when
    for record in letters(first, until, failed_at, settings.topic_dead_letters):
        at = int(failed_at.timestamp() * 1000)
        while True:
            try:
                producer.produce(**record._replace(timestamp=at)._asdict())
                break
            except BufferError:
                producer.poll(0.05)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} letters were not taken by the broker")


def _sweep(settings: Settings) -> Measured:
    environ = {**os.environ, **settings.environ()}
    return run([str(SHARDPOST), "letters", "sweep"], environ, settings.home)


def _bare(settings: Settings, count: int) -> Measured:
    names = [f"{settings.topic_dead_letters}-bare", f"{settings.topic_retries}-bare"]
    sizes = [str(count), str(settings.retry_batch)]
    command = [sys.executable, "-m", "bench.bare", settings.bootstrap, *sizes, *names]
    return run(command, os.environ, CHECKOUT)


def _check(settings: Settings, count: int) -> None:
    """Read all retries, committed ones only: each letter once, at its first attempt."""
    seen: set[str] = set()
    total = 0
    for partition in range(PARTITIONS):
        for message in read_to_end(settings, settings.topic_retries, partition):
            headers = dict(headers_of(message))
            total += headers[ATTEMPT] == b"1"
            seen.add(as_text(headers[ID]))
    if not total == len(seen) == count:
        raise RuntimeError(f"expected {count} letters once each, found {total}, of {len(seen)}")
    print(f"  {count:,} letters, each once", flush=True)
