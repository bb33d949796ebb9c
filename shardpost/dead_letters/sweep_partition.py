"""The sweep of one partition: fence, then read to the end, then publish what is due, in batches.

The order matters. Fencing first ends what an older sweep left open and keeps it from writing more;
so what is read then is all that was ever done, and nothing is sent twice. Letters of one original
key go in the order of their origin, whatever their order in the store.
"""

import logging
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import chain, starmap
from operator import attrgetter
from sqlite3 import Connection

from shardpost.dead_letters.letter_topics import writer_of
from shardpost.dead_letters.model.retry_policy import LEFT_IN_STORE, Outcome, SelectedLetter
from shardpost.dead_letters.model.transition_records import Routes, is_of_misplaced, outcome_records
from shardpost.dead_letters.stored_letters import LettersNow, OtherRecordError, projections_of
from shardpost.dead_letters.sweep_job import ParkedGroup, parked_group
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.reading import read_selected
from shardpost.kafka.records import Outgoing, Record, batches, size_of
from shardpost.kafka.transactions import TooLargeError, Transactions
from shardpost.logs import step
from shardpost.projection import disk_errors_explained, open_temporary
from shardpost.values.retry_settings import RetryRules

SelectedRecord = tuple[Record, SelectedLetter]

log = logging.getLogger(__name__)


def in_origin_order(
    letters: Iterable[SelectedRecord], delayed: Iterator[tuple[int, int]]
) -> Iterator[SelectedRecord]:
    """Yield the letters, which come in the order of the store, in the order of their origin.

    `delayed` are the offsets of those that wait for one behind them, and of that one, in the order
    in which they go; until then they are on disk.
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
    """Yield a delayed letter, if the log cleaner left it."""
    for (row,) in disk.execute("SELECT letter FROM delayed WHERE offset = ?", (offset,)):
        yield pickle.loads(row)  # noqa: S301 - written here


@dataclass(frozen=True)
class Sweep:
    """What the partitions of one sweep share: its time, and the fingerprints that are held."""

    installation: Installation
    routes: Routes
    now: datetime
    held: frozenset[str] = frozenset()

    @cached_property
    def rules(self) -> RetryRules:
        """The retry rules of the settings."""
        return self.installation.settings.retry_rules

    def records(self, record: Record, selected: SelectedLetter) -> Sequence[Outgoing]:
        """Return the records that carry out a letter's outcome."""
        return outcome_records(record, selected, self.rules, self.routes, self.now)


@dataclass
class PartitionReport:
    """How many letters of a partition had which outcome; `error` is what stopped the sweep.

    `parked` counts those that were parked by their origin and the fingerprint of their error.
    `is_append_time` says whether the broker stamps the letters, as its newest record shows;
    `misplaced` counts those that were retried or parked and lay in another partition than their
    keys'. `is_second`: an earlier attempt at it was lost with its executor; what that one committed
    is not counted.
    """

    partition: TopicPartition
    counts: Counter[Outcome] = field(default_factory=Counter)
    error: str | None = None
    parked: Counter[ParkedGroup] = field(default_factory=Counter)
    is_append_time: bool = True
    misplaced: int = 0
    is_second: bool = False


def sweep_partition(sweep: Sweep, partition: TopicPartition) -> PartitionReport:
    """Sweep one partition; never raises: what stopped it is in the report."""
    report = PartitionReport(partition)
    try:
        with disk_errors_explained(partition):
            outcomes = _sweep(sweep, report)
    except ShardpostError as error:
        report.error = str(error)
    except Exception as error:
        log.exception("%s", partition)
        report.error = f"unexpected {type(error).__name__}: {error}"
    else:
        del report.counts[Outcome.RESTORE]  # it is written again, and waits as before
        left = (*LEFT_IN_STORE, Outcome.RESTORE)
        report.counts += Counter({outcome: outcomes[outcome] for outcome in left})
    return report


def due_by_fingerprint(sweep: Sweep, partition: TopicPartition) -> Counter[str]:
    """Return how many letters of each fingerprint are due in a partition; changes nothing."""
    with projections_of(sweep.installation, [partition]).open(partition) as database:
        return LettersNow(database, sweep.now).due_by_fingerprint()


def _sweep(sweep: Sweep, report: PartitionReport) -> Counter[Outcome]:
    """Sweep; count in the report what was committed; return the outcomes of all live letters."""
    partition, kafka = report.partition, sweep.installation.kafka
    step("fence")
    writer = writer_of(
        sweep.installation,
        "sweep",
        partition,
        fenced=f"fenced: a newer sweep has taken over {partition}; this one stops and sends"
        " nothing more",
        failed=f"{partition}: the sweep cannot write ({{reason}}); what is not committed was not"
        " sent: sweep again when Kafka is available",
    )
    with closing(writer):
        writer.open()
        step("read")
        projections = projections_of(sweep.installation, [partition])
        try:
            with projections.open(partition) as database:
                letters = LettersNow(database, sweep.now, sweep.held)
                counts, report.is_append_time = letters.counts(), letters.is_append_time
                if count := letters.select():
                    step("publish")
                    selected = letters.selected()
                    records = read_selected(kafka, partition, selected, attrgetter("offset"))
                    same = starmap(letters.require_same, records)
                    _publish(sweep, writer, in_origin_order(same, letters.delayed()), report)
        except OtherRecordError:
            projections.forget(partition)
            raise
        if report.counts.total() < count:  # the log cleaner has taken letters that lay below others
            projections.forget(partition)
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
            if records and is_of_misplaced(records[-1], record, sweep.routes):
                report.misplaced += 1
            if outcome is Outcome.PARK:
                report.parked[parked_group(records[0])] += 1
        step("committed")


def _publish_one(
    sweep: Sweep, writer: Transactions, record: Record, selected: SelectedLetter
) -> tuple[Outcome, Sequence[Outgoing]]:
    """Write one letter of a batch with a record that is too large; return the outcome and records.

    What cannot be retried is parked; what cannot be parked either is held.
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
