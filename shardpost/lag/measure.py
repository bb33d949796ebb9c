"""How far every reader is behind, and when it loses data: the public function of this room."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from confluent_kafka import KafkaException

from shardpost.kafka.clients import FIRST_ANSWER_SECONDS, admin, unreachable
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.group_coordinators import OFFSETS_TOPIC
from shardpost.kafka.groups import Group, groups
from shardpost.lag.model.assessment import assess, unknown
from shardpost.lag.model.partition import Partition
from shardpost.lag.model.position import Position
from shardpost.lag.model.report import Clear, Lag, Selection
from shardpost.lag.model.row import LagRow, by_time_to_loss
from shardpost.lag.offset_expiry import offset_expiry
from shardpost.lag.own_readers import OWN, has_notes, own_positions
from shardpost.lag.partitions import partitions_now
from shardpost.lag.sized_partitions import SizeLook, with_sizes
from shardpost.lag.unread_records import with_unread
from shardpost.settings import Settings

NO_TOPIC = "Kafka has no such partition"


def measure(
    settings: Settings,
    now: datetime,
    selection: Selection | None = None,
    *,
    clear: Clear | None = None,
    rates: Mapping[TopicPartition, float] | None = None,
) -> Lag:
    """Return how far readers are behind.

    `now` is compared with the timestamps of records, so with other machines' clocks. `clear` and
    `rates` (offsets a second, by which a partition grows at least) are what earlier measurements
    found. KafkaUnreachableError if Kafka does not answer.
    """
    wanted, now_ms = selection or Selection(), int(now.timestamp() * 1000)
    problems: list[str] = []
    counts = _partition_counts(settings)
    positions, left_out = _positions(settings, counts, wanted, problems)
    positions = [_with_clear(position, clear or {}) for position in positions]
    failed: dict[TopicPartition, str] = {}
    there = {position.partition for position in positions if _exists(position, counts)}
    partitions, measured = partitions_now(settings, there, failed), time.monotonic()
    readers = [position for position in positions if not position.is_note]
    partitions = with_unread(settings, partitions, _offsets(readers, partitions))
    look = SizeLook(now_ms, measured, rates or {})
    partitions = with_sizes(settings, partitions, readers, look, problems)
    problems += _unanswered(failed)
    rows = [_row(position, partitions, failed, now_ms) for position in positions]
    problems += _unread(rows)
    return Lag(sorted(rows, key=by_time_to_loss), problems, left_out)


def _partition_counts(settings: Settings) -> dict[str, int]:
    seconds = min(FIRST_ANSWER_SECONDS, settings.kafka_timeout)
    try:
        known = admin(settings).list_topics(timeout=seconds).topics
    except KafkaException as error:
        raise unreachable(settings, error) from None
    return {topic: len(found.partitions) for topic, found in known.items()}


def _positions(
    settings: Settings, counts: Mapping[str, int], wanted: Selection, problems: list[str]
) -> tuple[list[Position], list[str]]:
    own = own_positions(settings, counts, wanted.groups, problems)
    found = groups(settings, wanted.groups)
    problems += [f"group {name}: {reason}" for name, reason in found.failed.items()]
    others = [_selected(group, wanted) for group in found.groups if group.name not in OWN]
    expiry = offset_expiry(settings, others, counts.get(OFFSETS_TOPIC, 0), problems)
    positions = [position for position in own if wanted.has(position.partition.topic)]
    for group in others:
        positions += _of_group(group, expiry.get(group.name, {}))
    return positions, found.without_offsets


def _selected(group: Group, wanted: Selection) -> Group:
    committed = {at: offset for at, offset in group.committed.items() if wanted.has(at.topic)}
    assigned = frozenset(at for at in group.assigned if wanted.has(at.topic))
    return replace(group, committed=committed, assigned=assigned)


def _of_group(group: Group, expiry: Mapping[TopicPartition, int]) -> Iterator[Position]:
    for partition, offset in sorted(group.committed.items()):
        expires, is_note = expiry.get(partition), has_notes(group.name)
        yield Position(group.name, partition, offset, expires, is_note=is_note)
    for partition in sorted(group.assigned - group.committed.keys()):
        yield Position(group.name, partition, None)


def _with_clear(position: Position, clear: Clear) -> Position:
    found = clear.get((position.group, position.partition), 0)
    return replace(position, clear_until=found) if found else position


def _exists(position: Position, counts: Mapping[str, int]) -> bool:
    return position.partition.partition < counts.get(position.partition.topic, 0)


def _offsets(
    positions: Collection[Position], partitions: Mapping[TopicPartition, Partition]
) -> dict[TopicPartition, set[int]]:
    """Return where readers go on; one that is beyond the end has all before it."""
    found: dict[TopicPartition, set[int]] = {partition: set() for partition in partitions}
    for position in positions:
        there = partitions.get(position.partition)
        if there is not None and position.committed is not None:
            is_beyond = position.committed > there.high
            found[position.partition].add(there.low if is_beyond else position.committed)
    return found


def _row(
    position: Position,
    partitions: Mapping[TopicPartition, Partition],
    failed: Mapping[TopicPartition, str],
    now_ms: int,
) -> LagRow:
    found = partitions.get(position.partition)
    if found is None:
        return unknown(position, failed.get(position.partition, NO_TOPIC))
    return assess(position, found, now_ms)


def _unanswered(failed: Mapping[TopicPartition, str]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for partition, reason in sorted(failed.items()):
        by_reason.setdefault(reason, []).append(str(partition))
    return [f"{_some(named)}: {reason}" for reason, named in by_reason.items()]


def _unread(rows: Collection[LagRow]) -> list[str]:
    """Return which partitions hold something unread of which nothing is known."""
    named = {
        f"{row.topic}[{row.partition}]"
        for row in rows
        if row.records_behind and row.seconds_behind is None and row.seconds_to_loss is None
    }
    return [f"{_some(sorted(named))}: unread records could not be read in time"] if named else []


def _some(named: Sequence[str]) -> str:
    more = f" and {len(named) - 10} more" if len(named) > 10 else ""
    return ", ".join(named[:10]) + more
