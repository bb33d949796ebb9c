"""Applying a redrive request to parked letters: they are redriven, edited or discarded.

As in a sweep, each partition of the parking lot is fenced first, then read, then written. One
transaction holds the retry, the tombstone of the parked letter, and the record of the decision.
"""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter

from shardpost.dead_letters.batches import batches, itself
from shardpost.dead_letters.model import transition_records
from shardpost.dead_letters.model.letter_format import Letter
from shardpost.dead_letters.model.letter_names import name_of
from shardpost.dead_letters.model.letter_parser import attempt_of
from shardpost.dead_letters.model.letter_state import LetterState
from shardpost.dead_letters.model.redrive_request import RedriveLimits, RedriveRequest
from shardpost.dead_letters.model.transition_records import Routes
from shardpost.dead_letters.parked_again import PARKED_AGAIN, NewlyParked, ParkedAgainError
from shardpost.dead_letters.parked_selection import selected_letters
from shardpost.dead_letters.selected_records import read_selected
from shardpost.decisions import decisions_topic
from shardpost.decisions.decision import Decision
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.records import Outgoing, Record
from shardpost.kafka.transactions import TooLargeError, Transactions
from shardpost.settings import Settings
from shardpost.topics.declared import PRODUCED_BYTES

TOO_LARGE = "too large for its retry topic"


@dataclass(frozen=True)
class Redrive:
    """A redrive request with its limits, and the topics that it applies to."""

    settings: Settings
    routes: Routes
    request: RedriveRequest
    limits: RedriveLimits = field(default_factory=RedriveLimits)

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        """The partitions of the parking lot."""
        topic = self.routes.parking_lot
        return [TopicPartition(topic, number) for number in range(self.routes.partitions[topic])]

    @property
    def batch_size(self) -> int:
        """How many letters go in one transaction: with a rate at most those of one second."""
        most = self.settings.retry_batch
        return most if self.limits.rate is None else max(1, min(most, int(self.limits.rate)))


@dataclass
class RedriveResult:
    """How many letters have moved so far, and which did not, with the reasons."""

    count: int = 0
    refused: dict[str, str] = field(default_factory=dict)


def carry_out(redrive: Redrive, result: RedriveResult) -> None:
    """Move the letters that are selected; `result` is kept up to date."""
    for partition in redrive.partitions:
        if result.count == redrive.limits.canary:
            break
        _redrive_partition(redrive, partition, result)


def _redrive_partition(redrive: Redrive, partition: TopicPartition, result: RedriveResult) -> None:
    settings, limits = redrive.settings, redrive.limits
    left = None if limits.canary is None else limits.canary - result.count
    with closing(_writer(settings, partition)) as writer:
        writer.open()
        newly_parked = NewlyParked(settings, partition)
        selected = selected_letters(settings, partition, redrive.request)
        moving = islice((one for one in selected if one.refusal is None), left)
        found = read_selected(settings, partition, moving, attrgetter("offset"))
        for batch in batches((record for record, _ in found), redrive.batch_size, itself):
            _move(redrive, writer, newly_parked, batch, result)
            if limits.rate is not None:
                time.sleep(len(batch) / limits.rate)


def _writer(settings: Settings, partition: TopicPartition) -> Transactions:
    return Transactions(
        settings,
        f"{partition.topic}/redrive/{partition.partition}",
        fenced=f"fenced: another redrive or discard has taken over {partition}; this one stops",
        failed=f"{partition}: cannot be written ({{reason}}); what is not committed has not moved:"
        " run it again when Kafka is available",
        **{"message.max.bytes": PRODUCED_BYTES},
    )


def _move(
    redrive: Redrive,
    writer: Transactions,
    newly_parked: NewlyParked,
    batch: Sequence[Record],
    result: RedriveResult,
) -> None:
    """Write one batch; a letter that was parked again, or is too large, is left and refused."""
    newest = [record for record in batch if not newly_parked.has(record)]
    result.refused |= {name_of(r.key): PARKED_AGAIN for r in batch if newly_parked.has(r)}
    try:
        records = [out for record in newest for out in _records(redrive, record)]
        writer.write(records, check=partial(newly_parked.check, newest))
    except ParkedAgainError:
        _move(redrive, writer, newly_parked, newest, result)
    except TooLargeError:
        if len(newest) == 1:
            result.refused[name_of(newest[0].key)] = TOO_LARGE
            return
        for record in newest:
            _move(redrive, writer, newly_parked, [record], result)
    else:
        result.count += len(newest)


def _records(redrive: Redrive, record: Record) -> Sequence[Outgoing]:
    """Return the records by which one parked letter is redriven or discarded."""
    settings, request = redrive.settings, redrive.request
    decision = Decision(record.key or b"", request.kind, request.who, request.now, request.why)
    decided = decisions_topic.written(settings, decision, {})
    attempt = attempt_of(record.headers, require_id=False)
    letter = transition_records.parse_parked(record)
    if not request.is_redrive or not isinstance(letter, Letter):
        gone = transition_records.tombstone(record, attempt, LetterState.DISCARDED, request.now)
        return [gone, decided]
    gone = transition_records.tombstone(record, attempt, LetterState.REDRIVEN, request.now)
    if request.value is not None:
        record = record._replace(value=request.value)
        letter = letter._replace(is_null=False)
    topic = settings.retry_rules.retry_topic(letter.origin_topic)
    return [transition_records.retry(letter, record, topic, redrive.routes), gone, decided]
