"""Where things are in Kafka, as values that print themselves: `positions[3]`, `positions[3]@41`.

Partitions, records, offsets and watermarks of partitions, ranges of offsets, what a topic was at a
time, and an open transaction, which keeps the records after it from whoever reads committed ones.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"

    def at(self, offset: int) -> "Coordinates":
        """Return the coordinates of the record at an offset."""
        return Coordinates(self.topic, self.partition, offset)


class Coordinates(NamedTuple):
    """Where one record is."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the record is in."""
        return TopicPartition(self.topic, self.partition)


# {topic: {partition: next offset to read}}
Offsets = Mapping[str, Mapping[int, int]]
# {topic: {partition: (low watermark, end)}}
Watermarks = Mapping[str, Mapping[int, tuple[int, int]]]


class PartitionMark(NamedTuple):
    """The first offset of a partition at a time, and the offset behind its last record."""

    low: int
    high: int

    def lost_since(self, known: "PartitionMark") -> str | None:
        """Return what is lost of what it held at an earlier mark, in words; None if nothing is."""
        if self.low > known.low:
            return f"the records from {known.low} to {self.low - 1} were deleted"
        if self.high < known.high:
            return f"it ends at offset {self.high}, but ended at {known.high} before"
        return None


@dataclass(frozen=True)
class TopicMark:
    """What a topic was at a time: its id, and the mark of each partition.

    `topic_id` is empty where the broker gives none: as far as can be known, it recreates no topic.
    """

    topic_id: str
    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return len(self.low)

    def lost_since(self, known: "TopicMark") -> str | None:
        """Return what is lost of what it held at an earlier mark, in words; None if nothing is."""
        if self.topic_id and known.topic_id and self.topic_id != known.topic_id:
            return (
                f"it was deleted and created again: its topic id is {self.topic_id}, but was "
                f"{known.topic_id} before"
            )
        if self.partitions != known.partitions:
            had, has = known.partitions, self.partitions
            return f"it has {has} partition{'s' * (has != 1)}, but had {had} before"
        marks = zip(self.low, self.high, known.low, known.high, strict=False)
        for number, (low, high, first, end) in enumerate(marks):
            if lost := PartitionMark(low, high).lost_since(PartitionMark(first, end)):
                return f"partition {number}: {lost}"
        return None

    def merged(self, other: "TopicMark | None") -> "TopicMark":
        """Return the mark with what another process noted of the same topic meanwhile.

        That of another topic stays as it is: who wrote it has looked at the topic since.
        """
        if other is None:
            return self
        if (other.topic_id, other.partitions) != (self.topic_id, self.partitions):
            return other
        low = tuple(map(min, self.low, other.low))
        return TopicMark(self.topic_id, low, tuple(map(max, self.high, other.high)))


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


class OpenTransaction(NamedTuple):
    """Where it begins, and the timestamp of its first record: nothing after it can be read.

    `since` is None if the record has none, or it has ended while that was asked for.
    """

    begins: Coordinates
    since: datetime | None

    def __str__(self) -> str:
        since = f"{self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since else "an unknown time"
        return f"{self.begins}, since {since}"

    def as_json(self) -> dict[str, object]:
        """Return topic, partition, offset and since."""
        since = self.since.isoformat() if self.since else None
        return {**self.begins._asdict(), "since": since}
