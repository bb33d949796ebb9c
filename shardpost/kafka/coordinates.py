"""Where things are in Kafka, as values that print themselves: `positions[3]`, `positions[3]@41`."""

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
