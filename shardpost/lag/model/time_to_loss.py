"""How far readers are behind, and lower bounds of when unread records will be deleted, with causes.

Sources: Kafka's UnifiedLog (deletion by time and size takes whole segments from the beginning, the
one that is written to as well) and LogCleaner (KIP-534: a tombstone is removed
`delete.retention.ms` after it was first cleaned, and it is not cleaned before
`min.compaction.lag.ms`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION
from shardpost.kafka.records import TopicPartition
from shardpost.lag.model.partition import Partition, Unread
from shardpost.wording import duration_text


@dataclass(frozen=True)
class Position:
    """The next offset that a group reads; None if it has committed none.

    `expires_ms` (since 1970) is when Kafka forgets that offset, as things are; None for never.
    `clear_until`: below that offset an earlier look found no record that was unread at this one.
    `was_recreated`: the topic is known to have been replaced since it was read.
    """

    group: str
    partition: TopicPartition
    committed: int | None
    expires_ms: int | None = None
    clear_until: int = 0
    was_recreated: bool = False


@dataclass(frozen=True)
class LagRow:
    """How far a group is behind in one partition, and when it loses data; as in `lag --json`.

    `committed` is None if it has committed nothing, `end` (the high watermark) if nobody says it;
    then the numbers after them are None as well. `seconds_to_loss` is None where nothing can be
    lost; 0 where data is lost already, or may be at any moment.
    """

    group: str
    topic: str
    partition: int
    committed: int | None
    end: int | None
    records_behind: int | None
    seconds_behind: float | None
    seconds_to_loss: float | None
    reason: str

    def loses_within(self, seconds: float) -> bool:
        """Tell whether it has lost data, or will within that many seconds."""
        return self.seconds_to_loss is not None and self.seconds_to_loss <= seconds


def by_time_to_loss(row: LagRow) -> tuple[float, str, str, int]:
    """Return the sort key of rows: what is lost first comes first, what is never lost last."""
    never = float("inf")
    seconds = never if row.seconds_to_loss is None else row.seconds_to_loss
    return seconds, row.group, row.topic, row.partition


# {(group, partition): below that offset an earlier look found nothing that was unread}: what is
# deleted there was no record, but markers, and records that were aborted
Clear = Mapping[tuple[str, TopicPartition], int]


@dataclass(frozen=True)
class Selection:
    """Only groups and topics of these names; all where there are none."""

    groups: Collection[str] = ()
    topics: Collection[str] = ()

    def has(self, topic: str) -> bool:
        """Tell whether a topic is wanted."""
        return not self.topics or topic in self.topics


@dataclass(frozen=True)
class Lag:
    """What was found: rows, soonest loss first; and what could not be queried.

    `others` are groups that are no consumer groups, each with its kind.
    """

    rows: Sequence[LagRow]
    problems: Sequence[str] = field(default_factory=list)
    others: Sequence[str] = field(default_factory=list)

    def exit_code(self, warning: float) -> int:
        """Return NEEDS_ATTENTION if data is lost, or will be within `warning` seconds."""
        if any(row.loses_within(warning) for row in self.rows):
            return NEEDS_ATTENTION
        return COULD_NOT if self.problems else DONE


class Loss(NamedTuple):
    """Unread data is not deleted before `at_ms` (since 1970); `cause` is what deletes it."""

    at_ms: int
    cause: str


def losses(partition: Partition, unread: Unread, now_ms: int) -> Iterator[Loss]:
    """Yield each way in which unread records of a partition can be deleted."""
    if unread.first is not None:
        rules = (_by_time, _by_size, _by_compaction)
        yield from filter(None, (rule(partition, unread, now_ms) for rule in rules))


def _by_time(partition: Partition, unread: Unread, now_ms: int) -> Loss | None:
    """Return when the record can go by `retention.ms`.

    Its segment goes when the newest timestamp in it is that old, and so are all segments before it.
    So the latest timestamp up to the record counts, unless compaction may remove that one.
    """
    retention = partition.retention
    if retention.time_ms is None or unread.first is None:
        return None
    newest = unread.first.timestamp
    if not retention.compaction.is_compacted and unread.newest_before is not None:
        newest = max(newest, unread.newest_before)
    cause = f"retention.ms is {duration_text(retention.time_ms / 1000)}"
    if newest < 0:
        return Loss(now_ms, f"{cause}, and the next unread record has no timestamp")
    return Loss(newest + retention.time_ms, cause)


def _by_size(partition: Partition, unread: Unread, now_ms: int) -> Loss | None:
    """Return when the record can go by `retention.bytes`; None if the partition does not grow.

    A segment goes when those after it have that size. They have less than what is unread.
    """
    limit, size = partition.retention.size, partition.size
    if limit is None or size is None or unread.first is None:
        return None
    offsets = max(partition.high - partition.low, 1)
    bytes_each = size / offsets
    left = limit - bytes_each * (partition.high - max(unread.first.offset, partition.low))
    cause = f"retention.bytes is {limit}, the partition has {size} bytes"
    if left <= 0:
        return Loss(now_ms, cause)
    grows = (partition.growth or 0) * bytes_each
    if grows <= 0:
        return None
    return Loss(now_ms + int(1000 * left / grows), f"{cause} and grows by {grows:.3g} a second")


def _by_compaction(partition: Partition, unread: Unread, now_ms: int) -> Loss | None:
    """Return when an unread tombstone can go, by the oldest that is known.

    Of unread offsets that were not looked at, it is when one could that is as old as the next
    record. Values that compaction removes are superseded: who reads a table misses nothing by it.
    """
    retention = partition.retention
    if not retention.compaction.is_compacted:
        return None
    found = unread.tombstone
    if found is None:
        if unread.looked_until >= partition.high:
            return None
        found = unread.first
        what = f"there may be an unread tombstone from offset {unread.looked_until} on"
    else:
        what = f"there is an unread tombstone at offset {found.offset}"
    kept = (
        f"{what}, without which it keeps a key that was removed, and min.compaction.lag.ms +"
        f" delete.retention.ms is {duration_text(retention.tombstones_ms / 1000)}"
    )
    if found is None or found.timestamp < 0:
        return Loss(now_ms, f"{kept}, and its timestamp is unknown")
    return Loss(found.timestamp + retention.tombstones_ms, kept)


RESET = "its auto.offset.reset decides where it starts"


def assess(position: Position, partition: Partition, now_ms: int) -> LagRow:
    """Return how far a reader is behind in a partition as it was found at a time."""
    if position.committed is None:
        return _row(position, partition, None, None, f"has committed no offset: {RESET}")
    unread = partition.unread(position.committed)
    if position.was_recreated:
        was = "the topic was deleted and recreated since then: its former records are lost"
        return _row(position, partition, unread, 0.0, was, now_ms)
    if position.committed > partition.high:
        beyond = (
            f"the committed offset {position.committed} is beyond the end {partition.high}: the"
            f" topic was recreated or truncated, and {RESET}"
        )
        whole = partition.unread(partition.low)
        return _row(position, partition, whole, 0.0, beyond, now_ms)
    if lost := _already_lost(position.committed, position.clear_until, partition):
        return _row(position, partition, unread, 0.0, lost, now_ms)
    return _with_loss(position, partition, unread, now_ms)


def unknown(position: Position, why: str) -> LagRow:
    """Return the row of a reader whose partition could not be read."""
    place = (position.group, *position.partition)
    return LagRow(*place, position.committed, None, None, None, None, why)


def _already_lost(committed: int, clear_until: int, partition: Partition) -> str | None:
    """Return what was deleted before it was read, or None.

    A reader stops in front of the marker that ends the last transaction. Where that was the last
    offset of all, and was deleted with all else, nothing was lost.
    """
    low = partition.low
    gone = low - committed
    if gone <= 0 or clear_until >= low or (gone == 1 and low == partition.high):
        return None
    which = f"offset {committed}" if gone == 1 else f"offsets {committed} to {low - 1}"
    verb = "was" if gone == 1 else "were"
    return (
        f"has lost data: {which} ({gone}) {verb} deleted before it read them, by retention or"
        " DeleteRecords; some may have been transaction markers"
    )


def _with_loss(position: Position, partition: Partition, unread: Unread, now_ms: int) -> LagRow:
    first = min(losses(partition, unread, now_ms), default=None)
    expires_ms = position.expires_ms
    if expires_ms is not None and (first is None or expires_ms < first.at_ms):
        seconds = _seconds(expires_ms - now_ms)
        reason = (
            f"its offsets can expire {_when(seconds)} unless it commits: the group has no member,"
            f" offsets.retention.minutes; then {RESET}"
        )
        return _row(position, partition, unread, seconds, reason, now_ms)
    if first is not None:
        seconds = _seconds(first.at_ms - now_ms)
        topic = position.partition.topic
        reason = (
            f"loses data {_when(seconds)} unless it continues reading: {first.cause} in"
            f" topic {topic}"
        )
        if unread.first_is_bound:
            reason += "; estimated from an earlier record, since the next one was not read"
        return _row(position, partition, unread, seconds, reason, now_ms)
    return _row(position, partition, unread, None, _why_nothing(partition, unread), now_ms)


def _when(seconds: float) -> str:
    return f"in {duration_text(seconds)}" if seconds >= 1 else "at any moment"


def _why_nothing(partition: Partition, unread: Unread) -> str:
    if unread.first is None:
        if unread.is_exact:
            return "no unread records"
        return "not known: the unread records could not be read"
    retention = partition.retention
    if retention.compaction.is_compacted:
        return "nothing unread can be lost: compacted, and no unread tombstone"
    if retention.size is not None and partition.size is None:
        return "not known: retention.bytes applies, but the partition's size is unknown"
    if retention.size is not None:
        return "nothing unread can be lost: retention.bytes is not reached as the partition grows"
    return "nothing unread can be lost: no retention"


def _row(
    position: Position,
    partition: Partition,
    unread: Unread | None,
    seconds: float | None,
    reason: str,
    now_ms: int = 0,
) -> LagRow:
    at, stable = position.committed, partition.stable
    if at is not None and at >= stable and stable != partition.high:
        reason += f"; an open transaction since offset {stable} blocks it"
    return LagRow(
        position.group,
        *position.partition,
        position.committed,
        partition.high,
        None if unread is None else unread.records,
        None if unread is None else _seconds_behind(unread, now_ms),
        seconds,
        reason,
    )


def _seconds_behind(unread: Unread, now_ms: int) -> float | None:
    if unread.first is None:
        return 0.0 if unread.is_exact else None
    return None if unread.first.timestamp < 0 else _seconds(now_ms - unread.first.timestamp)


def _seconds(milliseconds: int) -> float:
    return max(0, milliseconds) / 1000
