"""Ranges of offsets after those that were read, and what is wrong with them."""

from collections.abc import Iterator
from typing import NamedTuple

from shardpost.kafka.coordinates import OffsetRange, Offsets, TopicPartition, Watermarks


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
    result = Gaps({}, {}, {})
    for at, first, low, end in _unread(read, watermarks):
        if first < low:
            text = f"{OffsetRange(*at, first, low)} were deleted before being read"
            result.deleted.setdefault(at.topic, []).append(text)
        elif first > end:
            text = f"{at}: read up to {first}, but it ends at {end}"
            result.shorter.setdefault(at.topic, []).append(text)
    for topic, partitions in watermarks.items():
        for partition in read.get(topic, {}).keys() - partitions.keys():
            text = f"{TopicPartition(topic, partition)} was read, but does not exist"
            result.absent.setdefault(topic, []).append(text)
    return result


def ranges_to_read(read: Offsets, watermarks: Watermarks) -> list[OffsetRange]:
    """Return the non-empty ranges after what was read, as far as they are there.

    A partition that was never read is read from its low watermark.
    """
    return [
        OffsetRange(*at, max(first, low), end)
        for at, first, low, end in _unread(read, watermarks)
        if max(first, low) < end
    ]


def retries_to_read(
    read: Offsets, watermarks: Watermarks
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Return the non-empty ranges of retry topics after what was read, and the deleted ones.

    Kafka deletes retries by age, and most are of other origins: what was deleted stops nothing. A
    topic that was deleted and recreated is read from its low watermark.
    """
    ranges, deleted = [], []
    for at, first, low, end in _unread(read, watermarks):
        if first < low:
            deleted.append(OffsetRange(*at, first, low))
        begin = first if low <= first <= end else low
        if begin < end:
            ranges.append(OffsetRange(*at, begin, end))
    return ranges, deleted


def _unread(
    read: Offsets, watermarks: Watermarks
) -> Iterator[tuple[TopicPartition, int, int, int]]:
    """Yield each partition, the first offset that was not read, and its watermarks."""
    for topic, partitions in watermarks.items():
        for partition, (low, end) in partitions.items():
            first = read.get(topic, {}).get(partition, low)
            yield TopicPartition(topic, partition), first, low, end
