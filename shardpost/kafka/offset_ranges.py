"""Offsets and watermarks of partitions, and ranges of offsets, as values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardpost.kafka.coordinates import TopicPartition

# {topic: {partition: next offset to read}}
Offsets = Mapping[str, Mapping[int, int]]
# {topic: {partition: (low watermark, end)}}
Watermarks = Mapping[str, Mapping[int, tuple[int, int]]]


@dataclass(frozen=True)
class OffsetRange:
    """The offsets first … until - 1 of one partition."""

    topic: str
    partition: int
    first: int
    until: int

    def __str__(self) -> str:
        return f"{self.topic_partition}: offsets {self.first} to {self.until - 1}"

    @property
    def size(self) -> int:
        """How many offsets there are."""
        return self.until - self.first

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


def total_size(ranges: Iterable[OffsetRange]) -> int:
    """Return how many offsets there are in all ranges."""
    return sum(range_.size for range_ in ranges)


def ends(marks: Watermarks) -> dict[str, dict[int, int]]:
    """Return the ends alone."""
    return {
        topic: {partition: end for partition, (_, end) in partitions.items()}
        for topic, partitions in marks.items()
    }
