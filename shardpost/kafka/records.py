"""Records as values: one as it was read, one as it is to be written."""

from collections.abc import Sequence
from typing import NamedTuple

from shardpost.kafka.coordinates import Coordinates

Header = tuple[str, str | bytes | None]
Headers = Sequence[Header]

HEADERS_LEFT_OUT = "headers-left-out"
# The one header of a record whose headers the client cannot read.
HEADERS_UNREADABLE = "all: the name of one is no UTF-8"

BY_KEY = -1
NOW = 0


class Record(NamedTuple):
    """A record that was read; `timestamp` in milliseconds since 1970."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    topic: str
    partition: int
    offset: int

    @property
    def coordinates(self) -> Coordinates:
        """Where the record is."""
        return Coordinates(self.topic, self.partition, self.offset)

    @property
    def id(self) -> str:
        """The coordinates as `topic-partition-offset`, the id of the record's letter."""
        return f"{self.topic}-{self.partition}-{self.offset}"


class Outgoing(NamedTuple):
    """A record to be written; BY_KEY leaves its partition to Kafka's placement of keys."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    partition: int = BY_KEY
    timestamp: int = NOW
