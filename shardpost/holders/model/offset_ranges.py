"""Which offsets a run reads: from the ends of the last snapshot to the ends as they are now."""

from collections.abc import Iterator
from typing import NamedTuple

from shardpost.errors import ShardpostError
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offset_ranges import OffsetRange, Offsets, Watermarks


class _Unread(NamedTuple):
    """A partition, the first offset that was not read, and its watermarks."""

    partition: TopicPartition
    first: int
    low: int
    end: int

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(*self.partition, self.first, self.end)

    @property
    def deleted(self) -> OffsetRange:
        """The offsets that were deleted before being read; none if it ends before it begins."""
        return OffsetRange(*self.partition, self.first, self.low)


def ranges_to_read(read: Offsets, watermarks: Watermarks) -> list[OffsetRange]:
    """Return the non-empty ranges after what was read.

    A partition that was never read is read from its low watermark. ShardpostError, naming every
    such partition, if records were deleted before being read or a topic was deleted and recreated:
    holders would be wrong.
    """
    found, lost = [], []
    for unread in _unread(read, watermarks):
        if unread.first < unread.low:
            lost.append(f"{unread.deleted} were deleted before being read")
        elif unread.first > unread.end:
            lost.append(
                f"{unread.partition}: read up to {unread.first}, but it ends at {unread.end}"
            )
        elif unread.first < unread.end:
            found.append(unread.range)
    if lost:
        raise ShardpostError(
            f"the tables cannot catch up with the input topics: {'; '.join(lost)}. Records were"
            " deleted, or the topic was deleted and recreated: compact into empty tables (another"
            " SHARDPOST_TABLES) and an empty topic share-holders (another"
            " SHARDPOST_TOPIC_SHARE_HOLDERS)"
        )
    return found


def retries_to_read(
    read: Offsets, watermarks: Watermarks
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Return the non-empty ranges of retry topics after what was read, and the deleted ones.

    Kafka deletes retries by age, and most are of other origins: what was deleted stops nothing. A
    topic that was deleted and recreated is read from its low watermark.
    """
    found, deleted = [], []
    for unread in _unread(read, watermarks):
        if unread.first < unread.low:
            deleted.append(unread.deleted)
        if not unread.low <= unread.first <= unread.end:
            unread = unread._replace(first=unread.low)
        if unread.first < unread.end:
            found.append(unread.range)
    return found, deleted


def _unread(read: Offsets, watermarks: Watermarks) -> Iterator[_Unread]:
    for topic, partitions in watermarks.items():
        for partition, (low, end) in partitions.items():
            first = read.get(topic, {}).get(partition, low)
            yield _Unread(TopicPartition(topic, partition), first, low, end)
