"""Sweeps of many letters, beside a bare transactional producer that writes the same records."""

import os
import re
import shutil
import sys
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from confluent_kafka import Producer

from bench import kafka
from bench.letter_stream import PARTITIONS, letters
from bench.measured import Measured, run
from bench.ours import AT, SHARDPOST
from bench.table import Case, markdown
from shardpost.checkout import CHECKOUT
from shardpost.dead_letters.model.letter_format import ATTEMPT, ID, header_text
from shardpost.kafka.reading import headers_of, read_to_end
from shardpost.kafka.records import TopicPartition
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.topics.declared import DECLARED, LETTER_TOPICS
from tests.support.installed import installed

DUE, LATER = timedelta(hours=-1), timedelta(hours=1)
FEW = 1_000
# So that letters are as old as `_put` says.
GIVEN_TIMES = "topics: {dead-letters: {config: {message.timestamp.type: CreateTime}}}"
# The steps of the driver, and the line that ends the last of them.
MARK = re.compile(
    r"^(\S+ \S+) INFO (?:step: (intake|sweep|table)|dead_letters: read)", re.MULTILINE
)


def measure(settings: Settings, count: int, runs: int) -> None:
    """Measure all in turn, so many times, check every result, and print the table."""
    bare = Case("bare transactional producer: the same records, the same batches", count)
    due = Case(f"sweep, {count:,} due", count)
    empty = Case("sweep, nothing there", 1)
    quiet = Case(f"sweep, {PARTITIONS} letters waiting", PARTITIONS)
    again = Case("sweep again: all was dealt with", 1)
    waiting = Case(f"sweep, {count:,} waiting, none due", count)
    few = Case(f"sweep, {count:,} waiting and {FEW:,} due", FEW)
    raw = Case("floor: a plain consumer reads that store", count + FEW)
    for _ in range(runs):
        ours = _fresh(settings)
        empty.add(_sweep(ours))
        _put(ours, 0, count, DUE)
        bare.add(_bare(ours, count))
        due.add(_sweep(ours))
        _check(ours, count)
        again.add(_sweep(ours))
        kafka.delete(ours, [ours.topic(spec.name) for spec in LETTER_TOPICS])
        ours = _fresh(settings)
        _put(ours, 0, PARTITIONS, LATER)
        quiet.add(_sweep(ours))
        _put(ours, PARTITIONS, count, LATER)
        print("  the first sweep of what waits, which fills the table:", flush=True)
        print(f"  {_sweep(ours).seconds:.1f} s", flush=True)
        waiting.add(_sweep(ours))
        _put(ours, count, count + FEW, DUE)
        few.add(_sweep(ours))
        _check(ours, FEW)
        began = time.perf_counter()
        kafka.read_raw(ours, ours.topic("dead-letters"))
        raw.add(Measured(time.perf_counter() - began, {}, ""))
        kafka.delete(ours, [ours.topic(spec.name) for spec in LETTER_TOPICS])
    swept = [one.cells([quiet]) for one in (again, empty, quiet, waiting, few)]
    print("\n" + markdown([bare.cells([bare]), due.cells([bare]), *swept, raw.cells([])]))
    for case in (due, few):
        _explain(case)


def _explain(case: Case) -> None:
    last = case.runs[-1]
    marks = [(datetime.strptime(at, AT), name) for at, name in MARK.findall(last.log)]  # noqa: DTZ007
    spans = ((name, (then - at).total_seconds()) for (at, name), (then, _) in pairwise(marks))
    parts = (f"{name} {seconds:.1f} s" for name, seconds in spans)
    print(f"\n{case.name}, the last run: {last.seconds:.1f} s, of which: {', '.join(parts)}")
    print("peak MiB: " + ", ".join(f"{name} {peak}" for name, peak in last.peaks.items()))


def _fresh(settings: Settings) -> Settings:
    """Return settings with no table and new topics: a deleted one's name is not free at once."""
    home = settings.home / "letters"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    names = {spec.name: f"{time.time_ns()}-{spec.name}" for spec in DECLARED}
    more = {"home": home, "bootstrap_servers": settings.bootstrap, "partitions": PARTITIONS}
    made = settings.model_copy(update=more | {"topics": names})
    file = home / "topics.yaml"
    file.write_text(GIVEN_TIMES)
    apply_topics(installed(made.model_copy(update={"topics_file": file})))
    return made


def _put(settings: Settings, first: int, until: int, when: timedelta) -> None:
    producer = Producer(installed(settings).kafka.config(**kafka.FAST))
    failed_at = datetime.now(UTC) + when
    for record in letters(first, until, failed_at, settings.topic("dead-letters")):
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
    names = [f"{settings.topic('dead-letters')}-bare", f"{settings.topic('retries')}-bare"]
    for name in names:
        kafka.create(settings, name)
    sizes = [str(count), str(settings.retry_batch)]
    command = [sys.executable, "-m", "bench.bare", settings.bootstrap, *sizes, *names]
    measured = run(command, os.environ, CHECKOUT)
    kafka.delete(settings, names)
    return Measured(float(measured.log.split()[-1]), measured.peaks, "")


def _check(settings: Settings, count: int) -> None:
    """Read all retries, committed ones only: each letter once, at its first attempt."""
    seen: set[str] = set()
    total = 0
    for partition in range(PARTITIONS):
        for message in read_to_end(
            installed(settings).kafka, TopicPartition(settings.topic("retries"), partition)
        ):
            headers = dict(headers_of(message))
            total += headers[ATTEMPT] == b"1"
            seen.add(header_text(headers[ID]))
    if not total == len(seen) == count:
        raise RuntimeError(f"expected {count} letters once each, found {total}, of {len(seen)}")
    print(f"  {count:,} letters, each once", flush=True)
