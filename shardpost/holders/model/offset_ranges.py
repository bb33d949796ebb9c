"""Which offsets a run reads: from the ends of the last snapshot to the ends as they are now."""

from collections.abc import Iterator
from typing import NamedTuple

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


class Gaps(NamedTuple):
    """What is wrong with the inputs' offsets, in words, by topic.

    `deleted`: records were deleted before being read. `shorter`: a partition ends before the offset
    up to which it was read. `absent`: a partition that was read is not there any more.
    """

    deleted: dict[str, list[str]]
    shorter: dict[str, list[str]]
    absent: dict[str, list[str]]


def gaps(read: Offsets, watermarks: Watermarks) -> Gaps:
    """Return what is wrong; with that the tables cannot simply catch up: holders would be wrong."""
    found = Gaps({}, {}, {})
    for unread in _unread(read, watermarks):
        topic = unread.partition.topic
        if unread.first < unread.low:
            text = f"{unread.deleted} were deleted before being read"
            found.deleted.setdefault(topic, []).append(text)
        elif unread.first > unread.end:
            text = f"{unread.partition}: read up to {unread.first}, but it ends at {unread.end}"
            found.shorter.setdefault(topic, []).append(text)
    for topic, partitions in watermarks.items():
        for partition in read.get(topic, {}).keys() - partitions.keys():
            text = f"{TopicPartition(topic, partition)} was read, but is not there"
            found.absent.setdefault(topic, []).append(text)
    return found


def ranges_to_read(read: Offsets, watermarks: Watermarks) -> list[OffsetRange]:
    """Return the non-empty ranges after what was read, as far as they are there.

    A partition that was never read is read from its low watermark.
    """
    return [
        unread._replace(first=max(unread.first, unread.low)).range
        for unread in _unread(read, watermarks)
        if max(unread.first, unread.low) < unread.end
    ]


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
