"""Records of Kafka as values, where they are, and which partition a key belongs to.

Places print themselves: `positions[3]`, `positions[3]@41`. None of it needs a client.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


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


# What to do where producers do not.
ONE_PARTITIONER = (
    "have all producers place keys as Kafka's Java client does (with librdkafka, "
    "as in Python, Go and C: partitioner=murmur2_random)"
)

# The hash of Kafka's Java client (`org.apache.kafka.common.utils.Utils.murmur2`); librdkafka calls
# the same placement `murmur2_random`. Shard s of a table is partition s of its topic. The same rule
# as Spark columns, for the tables, is spark/kafka_source.py; a test compares the two.
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_MOST = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of the key, unsigned."""
    h = _SEED ^ len(key)
    whole = len(key) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if len(key) > whole:
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of(key: str | bytes, partitions: int) -> int:
    """Return the partition (shard) of a key in a topic of that many partitions."""
    raw = key.encode() if isinstance(key, str) else key
    return (murmur2(raw) & _MOST) % partitions


def by_partition(keys: Iterable[str], partitions: int) -> dict[int, list[str]]:
    """Return the keys of each partition that has any, in their order."""
    found: dict[int, list[str]] = defaultdict(list)
    for key in keys:
        found[partition_of(key, partitions)].append(key)
    return found


def partition_of_group(group: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` that a group is in, by Java's hash of its name.

    Source: Kafka's GroupCoordinatorService.partitionFor and Utils.abs.
    """
    number = 0
    raw = group.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        number = 31 * number + int.from_bytes(raw[at : at + 2]) & _MASK
    return abs(number - (1 << 32) if number > _MOST else number) % (1 << 31) % partitions


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
