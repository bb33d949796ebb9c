"""When unread records will be deleted: lower bounds, each with its cause.

Sources: Kafka's UnifiedLog (deletion by time and size takes whole segments from the beginning, the
one that is written to as well) and LogCleaner (KIP-534: a tombstone leaves `delete.retention.ms`
after it was first cleaned, and it is not cleaned before `min.compaction.lag.ms`).
"""

from collections.abc import Iterator
from typing import NamedTuple

from shardpost.lag.model.partition import Partition, Unread


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
    cause = f"retention.ms is {retention.time_ms}"
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
        what = f"a tombstone can be among what is unread from offset {unread.looked_until} on"
    else:
        what = f"there is an unread tombstone at offset {found.offset}"
    kept = f"{what}, and min.compaction.lag.ms + delete.retention.ms is {retention.tombstones_ms}"
    if found is None or found.timestamp < 0:
        return Loss(now_ms, f"{kept}, and its time is not known")
    return Loss(found.timestamp + retention.tombstones_ms, kept)
