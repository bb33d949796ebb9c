"""Applying a redrive request to parked letters: select, plan, redrive, edit or discard.

As in a sweep, each partition of the parking lot is fenced first, then read, then written. One
transaction holds the retry, the tombstone of the parked letter, and the record of the decision.

A tombstone removes all earlier records of its key, including a letter that a sweep parked again
after its older record was read. That is checked when the tombstone has its offset but is not
committed: later records are after it, and remain.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from shardpost.dead_letters.letter_topics import writer_of
from shardpost.dead_letters.model import transition_records
from shardpost.dead_letters.model.letter_format import (
    SHA256,
    Letter,
    LetterState,
    attempt_of,
    keys_of,
    name_of,
)
from shardpost.dead_letters.model.redrive_request import RedriveRequest, Shown
from shardpost.decisions import Decision, decisions_topic
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import watermark_of
from shardpost.kafka.reading import read_selected, read_to_end, record_of
from shardpost.kafka.records import Outgoing, Record, TopicPartition, batches, partition_of, size_of
from shardpost.kafka.transactions import TooLargeError, Transactions
from shardpost.projection import disk_errors_explained, open_temporary

PARKED_AGAIN = "it was parked again in the meantime: check it and decide again"
NOT_SHOWN = "it was not in the plan, or was parked again since then: make a new plan"


class ParkedAgainError(ShardpostError):
    """At least one letter was parked again."""


class NewlyParked:
    """The records of a partition of the parking lot from now on, committed or not."""

    def __init__(self, kafka: Kafka, partition: TopicPartition) -> None:
        self._kafka, self._partition = kafka, partition
        _, self._end = watermark_of(kafka, partition, committed=False)
        self._newest: dict[bytes | None, int] = {}

    def has(self, record: Record) -> bool:
        """Tell whether a letter was parked again, as far as the last check has read."""
        return self._newest.get(record.key, -1) > record.offset

    def check(self, records: Sequence[Record]) -> None:
        """Read new records; raises ParkedAgainError if one of those letters was parked again."""
        for message in read_to_end(self._kafka, self._partition, start=self._end, uncommitted=True):
            offset = message.offset() or 0
            self._end = offset + 1
            if message.value() is not None:
                self._newest[message.key()] = offset
        if any(map(self.has, records)):
            raise ParkedAgainError(PARKED_AGAIN)


class ParkedLetter(NamedTuple):
    """A selected parked letter; `refusal` is why it remains parked, or None."""

    id: str
    origin: str
    error: str
    refusal: str | None
    offset: int
    partition: int


# For a record that is not selected, all but id and offset is null.
_PARKED = "parked (id TEXT, origin TEXT, error, refusal, offset INTEGER PRIMARY KEY, partition)"
# With a single max, SQLite takes the other columns from its row.
_LAST = """
SELECT id, origin, error, refusal, max(offset) AS offset, partition FROM parked
GROUP BY id HAVING origin NOT NULL ORDER BY offset"""


@dataclass(frozen=True)
class Redrive:
    """A request and its topics: at most `canary` letters `shown` by its plan, `rate` per second."""

    installation: Installation
    routes: transition_records.Routes
    request: RedriveRequest
    shown: Shown
    canary: int | None = None
    rate: float | None = None

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        """The partitions of the parking lot that may contain selected letters."""
        topic, ids = self.routes.parking_lot, self.request.filters.ids
        count = self.routes.partitions[topic]
        numbers: Iterable[int] = range(count)
        if ids and not any(name.startswith(SHA256) for name in ids):
            numbers = sorted({partition_of(key, count) for name in ids for key in keys_of(name)})
        return [TopicPartition(topic, number) for number in numbers]

    def letter(self, record: Record) -> ParkedLetter:
        """Return a record of the parking lot that is selected."""
        refusal = self.request.refusal(record, self.installation.settings.retry_rules)
        if record.offset >= self.shown.ends.get(record.partition, 0):
            refusal = NOT_SHOWN
        name, group = name_of(record.key), transition_records.ParkedGroup.of(dict(record.headers))
        return ParkedLetter(name, *group, refusal, record.offset, record.partition)


def selected_letters(redrive: Redrive, partition: TopicPartition) -> Iterator[ParkedLetter]:
    """Read a partition of the parking lot to its end; yield what is selected, by offset."""
    messages = read_to_end(redrive.installation.kafka, partition)
    with disk_errors_explained(partition), closing(open_temporary(_PARKED)) as disk:
        for record in map(record_of, messages):
            row: Sequence[object]
            if record.value is None or not redrive.request.selects(record):
                row = (name_of(record.key), None, None, None, record.offset, record.partition)
            else:
                row = redrive.letter(record)
            disk.execute("INSERT INTO parked VALUES (?, ?, ?, ?, ?, ?)", row)
        yield from map(ParkedLetter._make, disk.execute(_LAST))


@dataclass
class RedriveResult:
    """The number of letters redriven or discarded, and the refused ones with reasons.

    After another thread sets `stop`, no further batch is written.
    """

    count: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)


def carry_out_redrive(redrive: Redrive, result: RedriveResult) -> None:
    """Redrive or discard the selected letters; `result` is kept up to date."""
    installation = redrive.installation
    most = installation.settings.retry_batch
    if redrive.rate is not None:  # in one transaction at most those of one second
        most = max(1, min(most, int(redrive.rate)))
    for partition in redrive.partitions:
        if result.count == redrive.canary or result.stop.is_set():
            break
        left = None if redrive.canary is None else redrive.canary - result.count
        writer = writer_of(
            installation,
            "redrive",
            partition,
            fenced=f"fenced: another redrive or discard has taken over {partition}; this run stops",
            failed=f"{partition}: cannot be written ({{reason}}); uncommitted letters were not"
            " moved: run it again when Kafka is available",
        )
        with closing(writer):
            installation.tables.require_held()  # without the lock it would fence its holder
            writer.open()
            newly_parked = NewlyParked(installation.kafka, partition)
            selected = selected_letters(redrive, partition)
            moving = islice((letter for letter in selected if letter.refusal is None), left)
            records = read_selected(installation.kafka, partition, moving, attrgetter("offset"))
            for batch in batches((record for record, _ in records), most, size_of):
                _move(redrive, writer, newly_parked, batch, result)
                if result.stop.wait(0 if redrive.rate is None else len(batch) / redrive.rate):
                    break


def _move(
    redrive: Redrive,
    writer: Transactions,
    newly_parked: NewlyParked,
    batch: Sequence[Record],
    result: RedriveResult,
) -> None:
    """Write one batch; refuse letters that were parked again or are too large."""
    newest = [record for record in batch if not newly_parked.has(record)]
    result.refused |= {name_of(r.key): PARKED_AGAIN for r in batch if newly_parked.has(r)}
    try:
        records = [out for record in newest for out in _records(redrive, record)]
        writer.write(records, check=partial(newly_parked.check, newest))
    except ParkedAgainError:
        _move(redrive, writer, newly_parked, newest, result)
    except TooLargeError:
        if len(newest) == 1:
            result.refused[name_of(newest[0].key)] = "too large for its retry topic"
            return
        for record in newest:
            _move(redrive, writer, newly_parked, [record], result)
    else:
        result.count += len(newest)


def _records(redrive: Redrive, record: Record) -> Sequence[Outgoing]:
    installation, request = redrive.installation, redrive.request
    decision = Decision(record.key or b"", request.kind, request.who, request.now, request.why)
    decided = decisions_topic.written(installation.kafka, decision, {})
    attempt = attempt_of(record.headers, require_id=False)
    letter = transition_records.parse_parked(record)
    if not request.is_redrive or not isinstance(letter, Letter):
        gone = transition_records.tombstone(record, attempt, LetterState.DISCARDED, request.now)
        return [gone, decided]
    gone = transition_records.tombstone(record, attempt, LetterState.REDRIVEN, request.now)
    if request.value is not None:
        record = record._replace(value=request.value)
        letter = letter._replace(is_null=False)
    topic = installation.settings.retry_rules.retry_topic(letter.origin_topic)
    return [transition_records.retry_record(letter, record, topic, redrive.routes), gone, decided]
