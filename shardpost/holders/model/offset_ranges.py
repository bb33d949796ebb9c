"""Which offsets a run reads.

What lies between the last snapshot's ends and the topics' ends now.
"""

from collections.abc import Iterator

from shardpost.errors import ShardpostError
from shardpost.kafka.offset_ranges import OffsetRange, Offsets, Watermarks


def ranges_to_read(read: Offsets, marks: Watermarks) -> list[OffsetRange]:
    """Return the non-empty ranges after what was read.

    A partition that was never read is read from its low watermark. Raises ShardpostError, naming
    every partition, where records were removed unread or a topic was made anew: holders would be
    wrong.
    """
    found, lost = [], []
    for topic, partition, first, low, end in _next(read, marks):
        if first < low:
            lost.append(f"{topic}[{partition}]: offsets {first} to {low - 1} are gone unread")
        elif first > end:
            lost.append(f"{topic}[{partition}]: read up to {first}, but it ends at {end}")
        elif first < end:
            found.append(OffsetRange(topic, partition, first, end))
    if lost:
        raise ShardpostError(
            f"the tables cannot follow their topics: {'; '.join(lost)}. The topic was purged or"
            " made anew: compact into empty tables (another SHARDPOST_TABLES) and an empty"
            " topic share-holders (another SHARDPOST_TOPIC_SHARE_HOLDERS)"
        )
    return found


def retries_to_read(read: Offsets, marks: Watermarks) -> tuple[list[OffsetRange], list[str]]:
    """Return the non-empty ranges of retry topics after what was read, and what is gone unread.

    Kafka removes retries by their age, and most are not ours: what is gone stops nothing. A topic
    that was made anew is read from its low watermark.
    """
    found, lost = [], []
    for topic, partition, first, low, end in _next(read, marks):
        if first < low:
            lost.append(f"{topic}[{partition}]: offsets {first} to {low - 1}")
        if not low <= first <= end:
            first = low
        if first < end:
            found.append(OffsetRange(topic, partition, first, end))
    return found, lost


def _next(read: Offsets, marks: Watermarks) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield (topic, partition, first offset not read, low watermark, end)."""
    for topic, partitions in marks.items():
        for partition, (low, end) in partitions.items():
            yield topic, partition, read.get(topic, {}).get(partition, low), low, end
