"""What a sweep parks while a person's decision is carried out.

A tombstone takes away all that lies before it under its key, so also a letter that was parked anew
after its older record was read. Whether there is one is looked up when the tombstone has its
offset and is not committed: what comes later lies above it, and stays.
"""

from collections.abc import Sequence

from shardpost.errors import ShardpostError
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import watermarks_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Record
from shardpost.settings import Settings

PARKED_AGAIN = "it was parked anew meanwhile: look at it, and decide again"


class ParkedAgainError(ShardpostError):
    """Some letter was parked anew."""


class ParkedSince:
    """The records of a partition of the parking lot from now on, committed or not."""

    def __init__(self, settings: Settings, topic: str, partition: int) -> None:
        self._settings, self._partition = settings, TopicPartition(topic, partition)
        _, self._end = watermarks_of(settings, self._partition, committed=False)
        self._newest: dict[bytes | None, int] = {}

    def has_newer(self, record: Record) -> bool:
        """Tell whether a letter was parked anew, as far as this was looked up."""
        return self._newest.get(record.key, -1) > record.offset

    def require_newest(self, records: Sequence[Record]) -> None:
        """Look what has come; OvertakenError if one of those letters was parked anew."""
        for message in read_to_end(
            self._settings, self._partition, start=self._end, uncommitted=True
        ):
            offset = message.offset() or 0
            self._end = offset + 1
            if message.value() is not None:
                self._newest[message.key()] = offset
        if any(map(self.has_newer, records)):
            raise ParkedAgainError(PARKED_AGAIN)
