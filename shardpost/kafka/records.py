"""Records as values: one as it was read, one to be written, and batches for one transaction each.

A transaction that grows with its input outlives its timeout one day, and then for good.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from shardpost.kafka.coordinates import Coordinates

T = TypeVar("T")
Header = tuple[str, str | bytes | None]
Headers = Sequence[Header]

HEADERS_LEFT_OUT = "headers-left-out"
# The one header of a record whose headers the client cannot read.
HEADERS_UNREADABLE = "all: the name of one is not UTF-8"

BY_KEY = -1
NOW = 0
NO_TIMESTAMP = -1  # of a record that was read: an old client wrote it without one

# What a batch of one record takes at most besides key, value and headers, and what each header
# takes besides name and value (record batches of version 2: KIP-98, Kafka's protocol guide).
BATCH_OVERHEAD = 100
HEADER_OVERHEAD = 10


def header_bytes(value: str | bytes | None) -> bytes | None:
    """Return a header's value as bytes."""
    return value.encode() if isinstance(value, str) else value


def utf8_text(raw: str | bytes | None) -> str | None:
    """Return bytes as text; None if they are not UTF-8, or if there are none."""
    try:
        return raw.decode() if isinstance(raw, bytes) else raw
    except UnicodeDecodeError:
        return None


class Record(NamedTuple):
    """A record that was read; `timestamp` in milliseconds since 1970.

    `is_append_time` says whose clock that is: the broker's, which stamps the records of a topic of
    LogAppendTime, or the producer's.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    topic: str
    partition: int
    offset: int
    is_append_time: bool = False

    @property
    def coordinates(self) -> Coordinates:
        """Where the record is."""
        return Coordinates(self.topic, self.partition, self.offset)


class Outgoing(NamedTuple):
    """A record to be written; BY_KEY lets Kafka place its key."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    partition: int = BY_KEY
    timestamp: int = NOW

    def arguments(self) -> dict[str, Any]:
        """Return those of `Producer.produce`, which would cut a header in text at its first NUL."""
        headers = [  # not by `header_bytes`: calls would take twice as long
            (name, value.encode() if isinstance(value, str) else value)
            for name, value in self.headers
        ]
        return {**self._asdict(), "headers": headers}


def batch_bytes(record: Outgoing) -> int:
    """Return the bytes that a batch of this one record has at most, uncompressed.

    A broker holds the batch as it comes, compressed or not, against `max.message.bytes`.
    """
    headers = sum(
        HEADER_OVERHEAD + len(name.encode()) + len(header_bytes(value) or b"")
        for name, value in record.headers
    )
    return BATCH_OVERHEAD + len(record.key or b"") + len(record.value or b"") + headers


MAX_BATCH_RECORDS = 10_000
MAX_BATCH_BYTES = 16 << 20  # of values and headers, however few records these are
HEADER_BYTES = 128  # that Python takes for a header, besides its value


class Batch(NamedTuple):
    """Some records, and whether none come after them."""

    records: list[Outgoing]
    is_last: bool


def in_batches(records: Iterable[Outgoing]) -> Iterator[Batch]:
    """Yield the records in batches of at most so many, and so many bytes or a single record.

    The last one is marked; without records it is empty.
    """
    for batch, is_last in _batches(records, MAX_BATCH_RECORDS, batch_bytes):
        yield Batch(batch, is_last)


def batches(items: Iterable[T], max_count: int, bytes_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the items in lists of at most `max_count`, and MAX_BATCH_BYTES or a single item."""
    yield from filter(None, (batch for batch, _ in _batches(items, max_count, bytes_of)))


def _batches(
    items: Iterable[T], max_count: int, bytes_of: Callable[[T], int]
) -> Iterator[tuple[list[T], bool]]:
    batch: list[T] = []
    size = 0
    for item in items:
        bytes_ = bytes_of(item)
        if batch and (len(batch) == max_count or size + bytes_ > MAX_BATCH_BYTES):
            yield batch, False
            batch, size = [], 0
        batch.append(item)
        size += bytes_
    yield batch, True


def size_of(record: Record) -> int:
    """Return the bytes of the value and the headers."""
    size = len(record.value or b"")
    for _, value in record.headers:  # `sum` would take twice as long
        size += HEADER_BYTES + len(value or b"")
    return size
