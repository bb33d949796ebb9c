"""The sweep of all dead letters: due letters are retried, or parked if they cannot be.

Take in foreign letters; sweep each partition of the store in a Spark task of its own
(`sweep_partition`); append the steps of all letters to the table `dead_letters`; report what needs
a person: parked or held letters, and gaps of the intake.

In a partition the order matters: fence, then read to the end, then publish what is due, in batches.
Fencing first ends what an older sweep left open and keeps it from writing more; so what is read
then is all that was ever done, and nothing is sent twice. Letters of one original key go in the
order of their origin, whatever their order in the store.
"""

import gc
import logging
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain, starmap
from operator import attrgetter
from sqlite3 import Connection
from typing import Any, TypeVar

from shardpost.dead_letters import letters_table, stored_letters
from shardpost.dead_letters.foreign_intake import naming, take_in
from shardpost.dead_letters.letter_topics import current_progress, routes_of, writer_of
from shardpost.dead_letters.model import transition_records
from shardpost.dead_letters.model.retry_policy import Outcome, SelectedLetter
from shardpost.dead_letters.sweep_job import (
    SWEEP_DEAD_LETTERS,
    Intake,
    as_json,
    for_a_person,
    parked_lines,
)
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError, said
from shardpost.installation import Installation
from shardpost.kafka.offsets import partitions_with_records
from shardpost.kafka.reading import read_selected
from shardpost.kafka.records import Outgoing, Record, TopicPartition, batches, size_of
from shardpost.kafka.transactions import TooLargeError, Transactions
from shardpost.logs import configure_logging, step
from shardpost.projection import disk_errors_explained, open_temporary
from shardpost.spark import driver
from shardpost.spark.job import JobResult
from shardpost.topics import guards

log = logging.getLogger(__name__)

MISPLACED = (
    "of these letters were not in the partition of their original key: a letter in both partitions"
    " is retried twice. Produce each letter to the partition that `make_letter` returns, or that"
    " Kafka's murmur2 gives for its original key (docs/dead-letters.md)"
)
SelectedRecord = tuple[Record, SelectedLetter]


def in_origin_order(
    letters: Iterable[SelectedRecord], delayed: Iterator[tuple[int, int]]
) -> Iterator[SelectedRecord]:
    """Yield letters that come in the store's order in the order of their origin.

    `delayed` are the offsets of letters that wait for a later one, and of that one, in the order of
    release; until then they are on disk.
    """
    table = "delayed (offset INTEGER PRIMARY KEY, letter BLOB)"
    with closing(open_temporary(table)) as disk:
        first = next(delayed, None)
        for record, selected in letters:
            while first is not None and first[1] < record.offset:
                yield from _stored(disk, first[0])
                first = next(delayed, None)
            if selected.release_offset > record.offset:
                row = (record.offset, pickle.dumps((record, selected)))
                disk.execute("INSERT INTO delayed VALUES (?, ?)", row)
            else:
                yield record, selected
        for offset, _ in chain([] if first is None else [first], delayed):
            yield from _stored(disk, offset)


def _stored(disk: Connection, offset: int) -> Iterator[SelectedRecord]:
    """Yield a delayed letter unless the log cleaner removed it."""
    for (row,) in disk.execute("SELECT letter FROM delayed WHERE offset = ?", (offset,)):
        yield pickle.loads(row)  # noqa: S301 - written here


@dataclass(frozen=True)
class Sweep:
    """What the partitions of one sweep share."""

    installation: Installation
    routes: transition_records.Routes
    now: datetime

    def records(self, record: Record, selected: SelectedLetter) -> Sequence[Outgoing]:
        """Return the records that carry out a letter's outcome."""
        rules = self.installation.settings.retry_rules
        return transition_records.outcome_records(record, selected, rules, self.routes, self.now)


@dataclass
class PartitionReport:
    """The number of letters per outcome of a partition; `error` is what stopped the sweep.

    `parked` counts parked letters by origin and fingerprint of their error, `misplaced` retried or
    parked letters outside their key's partition. `is_second`: an earlier attempt was lost with its
    executor; what it committed is not counted.
    """

    partition: TopicPartition
    counts: Counter[Outcome] = field(default_factory=Counter)
    error: str | None = None
    parked: Counter[transition_records.ParkedGroup] = field(default_factory=Counter)
    misplaced: int = 0
    is_second: bool = False


def sweep_partition(sweep: Sweep, partition: TopicPartition) -> PartitionReport:
    """Sweep one partition, mostly in a Spark task; never raises: the report has what stopped it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    report = PartitionReport(partition)
    report.is_second = context is not None and context.attemptNumber() > 0
    try:
        with disk_errors_explained(partition):
            outcomes = _sweep(sweep, report)
    except Exception as error:
        if not isinstance(error, ShardpostError):
            log.exception("%s", partition)
        report.error = said(error)
    else:
        del report.counts[Outcome.RESTORE]  # rewritten, and waiting as before
        left = (Outcome.WAIT, Outcome.RESTORE)
        report.counts += Counter({outcome: outcomes[outcome] for outcome in left})
    return report


def _sweep(sweep: Sweep, report: PartitionReport) -> Counter[Outcome]:
    """Sweep; count committed letters in the report; return the outcomes of all live letters."""
    partition, kafka = report.partition, sweep.installation.kafka
    step("fence")
    writer = writer_of(
        sweep.installation,
        "sweep",
        partition,
        fenced=f"fenced: a newer sweep has taken over {partition}; this sweep stops and sends"
        " nothing more",
        failed=f"{partition}: the sweep cannot write ({{reason}}); uncommitted letters were not"
        " sent: sweep again when Kafka is available",
    )
    with closing(writer):
        writer.open()
        step("read")
        projections = stored_letters.projections_of(sweep.installation, [partition])
        try:
            with projections.open(partition) as database:
                letters = stored_letters.LettersNow(database, sweep.now)
                counts = letters.counts()
                if count := letters.select():
                    step("publish")
                    selected = letters.selected()
                    records = read_selected(kafka, partition, selected, attrgetter("offset"))
                    same = starmap(stored_letters.require_same, records)
                    _publish(sweep, writer, in_origin_order(same, letters.delayed()), report)
        except stored_letters.OtherRecordError:
            projections.forget(partition)
            raise
        if report.counts.total() < count:  # the log cleaner removed letters covered by others
            projections.forget(partition)
    try:
        stored_letters.read_on(
            sweep.installation, [partition], beside=sweep.routes.partitions[partition.topic]
        )
    except ShardpostError as error:  # all is committed: the next sweep reads it
        log.warning("%s: its new records are left to the next sweep: %s", partition, error)
    texts = (f"{outcome.name.lower()} {counts[outcome]}" for outcome in Outcome if counts[outcome])
    log.info("%s: %s", partition, ", ".join(texts) or "no letters")
    return counts


def _publish(
    sweep: Sweep, writer: Transactions, letters: Iterable[SelectedRecord], report: PartitionReport
) -> None:
    most = sweep.installation.settings.retry_batch
    for batch in batches(letters, most, lambda letter: size_of(letter[0])):
        made = [(letter.outcome, sweep.records(record, letter)) for record, letter in batch]
        written: Iterable[tuple[Outcome, Sequence[Outgoing]]] = made
        try:
            writer.write([out for _, records in made for out in records])
        except TooLargeError:  # one by one: each is counted as soon as it is committed
            written = (_publish_one(sweep, writer, *letter) for letter in batch)
        for (record, _), (outcome, records) in zip(batch, written, strict=True):
            report.counts[outcome] += 1
            if records and transition_records.is_of_misplaced(records[-1], record, sweep.routes):
                report.misplaced += 1
            if outcome is Outcome.PARK:
                report.parked[transition_records.ParkedGroup.of(dict(records[0].headers))] += 1
        step("committed")


def _publish_one(
    sweep: Sweep, writer: Transactions, record: Record, selected: SelectedLetter
) -> tuple[Outcome, Sequence[Outgoing]]:
    """Write one letter of a batch that has a too large record; return outcome and records.

    A letter that cannot be retried is parked; if that fails, too, it is held.
    """
    records = sweep.records(record, selected)
    try:
        writer.write(records)
    except TooLargeError:
        if selected.outcome is not Outcome.RETRY:
            where, size = record.coordinates, len(record.value or b"")
            log.warning("held: %s: too large for the parking lot: %d bytes", where, size)
            return Outcome.HOLD, ()
        return _publish_one(sweep, writer, record, selected._replace(outcome=Outcome.PARK))
    return selected.outcome, records


# Allocations before Python's cyclic garbage collector runs: about twenty batches. Letters form no
# cycles, and the collector would take a quarter of a sweep.
GC_THRESHOLD = 500_000

Item = TypeVar("Item")
Result = TypeVar("Result")


def sweep_dead_letters(installation: Installation, now: datetime) -> JobResult:
    """Sweep once, under a lock; LockedError beside another sweep."""
    with guards.run(installation, SWEEP_DEAD_LETTERS.name):
        routes = routes_of(installation)
        step("intake")
        intake = take_in(installation, routes, now)
        result = as_json(Counter(), Counter(), intake)
        with naming(lambda: result):
            step("sweep")
            own = {routes.store: routes.partitions[routes.store]}
            partitions = partitions_with_records(installation.kafka, own)
            _sweep_store(Sweep(installation, routes, now), partitions, intake, result)
            step("table")
            count = letters_table.catch_up(installation, routes.partitions, _in_tasks)
            log.info("dead_letters: read %d more offsets", count)
            result["end_offsets"] = current_progress(installation).end_offsets
    return (NEEDS_ATTENTION if for_a_person(result) else DONE), result


def _sweep_store(
    sweep: Sweep, partitions: Sequence[TopicPartition], intake: Intake, result: dict[str, Any]
) -> None:
    """Sweep these partitions of the store and update the result, also if one of them fails."""
    reports = _in_tasks(partial(sweep_partition, sweep), partitions)
    if count := sum(report.misplaced for report in reports):
        log.warning("%s: %d %s", sweep.routes.store, count, MISPLACED)
    counts = sum((report.counts for report in reports), Counter[Outcome]())
    parked = sum((report.parked for report in reports), Counter[transition_records.ParkedGroup]())
    again = [str(report.partition) for report in reports if report.is_second]
    result.update(as_json(counts, parked, intake, again))
    for line in parked_lines(result):  # even for a failed sweep: the next one does not know
        log.warning(line)
    errors = [report.error for report in reports if report.error]
    if errors:
        raise ShardpostError("; ".join(errors))
    # Nothing, if the tasks ran on this machine.
    stored_letters.read_on(sweep.installation, partitions)


def _in_tasks(body: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Call a function for each item, in one Spark task each; return the results in order."""
    if not items:
        return []
    spark = driver.start_session(SWEEP_DEAD_LETTERS.name)
    tasks = spark.sparkContext.parallelize(items, len(items))
    return tasks.map(partial(_in_task, body)).collect()


def _in_task(body: Callable[[Item], Result], item: Item) -> Result:
    configure_logging()
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
    return body(item)
