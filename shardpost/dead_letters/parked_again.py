"""Letters that a sweep parks again while a redrive request is applied to them.

A tombstone removes all that lies before it under its key, so also a letter that was parked again
after its older record was read. That is checked when the tombstone has its offset and is not
committed yet: what comes later lies above it, and stays.
"""

from collections.abc import Sequence

from shardpost.errors import ShardpostError
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import watermarks_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Record
from shardpost.settings import Settings

PARKED_AGAIN = "it was parked again in the meantime: check it, and decide again"


class ParkedAgainError(ShardpostError):
    """At least one letter was parked again."""


class NewlyParked:
    """The records of a partition of the parking lot from now on, committed or not."""

    def __init__(self, settings: Settings, partition: TopicPartition) -> None:
        self._settings, self._partition = settings, partition
        _, self._end = watermarks_of(settings, partition, committed=False)
        self._newest: dict[bytes | None, int] = {}

    def has(self, record: Record) -> bool:
        """Tell whether a letter was parked again, as far as the last check has read."""
        return self._newest.get(record.key, -1) > record.offset

    def check(self, records: Sequence[Record]) -> None:
        """Read what is new; ParkedAgainError if one of those letters was parked again."""
        for message in read_to_end(
            self._settings, self._partition, start=self._end, uncommitted=True
        ):
            offset = message.offset() or 0
            self._end = offset + 1
            if message.value() is not None:
                self._newest[message.key()] = offset
        if any(map(self.has, records)):
            raise ParkedAgainError(PARKED_AGAIN)
