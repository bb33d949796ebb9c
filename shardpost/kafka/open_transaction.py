"""An open transaction that keeps records from whoever reads committed ones."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from shardpost.kafka.coordinates import Coordinates, TopicPartition
from shardpost.kafka.offset_ranges import Offsets


class OpenTransaction(NamedTuple):
    """Where it begins, and the timestamp of its first record: nothing behind it can be read.

    `since` is None if it has ended while that was asked for.
    """

    begins: Coordinates
    since: datetime | None

    def __str__(self) -> str:
        since = f"{self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since else "just now"
        return f"{self.begins}, since {since}"

    def as_json(self) -> dict[str, object]:
        """Return topic, partition, offset and since."""
        since = self.since.isoformat() if self.since else None
        return {**self.begins._asdict(), "since": since}


def unreached(high: Offsets, stable: Mapping[str, Mapping[int, int]]) -> Iterator[Coordinates]:
    """Yield each last stable offset that is below the high watermark; {topic: {partition: …}}."""
    for topic, partitions in high.items():
        for partition, end in partitions.items():
            if stable[topic][partition] < end:
                yield TopicPartition(topic, partition).at(stable[topic][partition])
