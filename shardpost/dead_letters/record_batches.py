"""Records in batches of bounded size, one transaction each, and a second reading of records."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.reading import read_to_end, record_of
from shardpost.kafka.records import Record

T = TypeVar("T")

# A batch ends with so many bytes of values and headers, however few records these are.
BATCH_BYTES = 16 << 20
HEADER_BYTES = 128  # that Python takes for a header, besides its value


def batches(items: Iterable[T], max_count: int, bytes_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the items in lists of at most `max_count`, each with about BATCH_BYTES at most."""
    batch: list[T] = []
    size = 0
    for item in items:
        batch.append(item)
        size += bytes_of(item)
        if len(batch) >= max_count or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def size_of(record: Record) -> int:
    """Return the bytes of the value and the headers."""
    size = len(record.value or b"")
    for _, value in record.headers:  # `sum` would take twice as long
        size += HEADER_BYTES + len(value or b"")
    return size


def read_one(kafka: Kafka, partition: TopicPartition, offset: int) -> Record | None:
    """Return the committed record at an offset; None if the log cleaner has removed it."""
    messages = read_to_end(kafka, partition, start=offset, committed=True)
    record = next(map(record_of, messages), None)
    return record if record is not None and record.offset == offset else None


def read_selected(
    kafka: Kafka,
    partition: TopicPartition,
    selected: Iterable[T],
    offset_of: Callable[[T], int],
) -> Iterator[tuple[Record, T]]:
    """Yield each selected item with its record; both are in the order of their offsets.

    One that the log cleaner has removed is left out: there is a newer one of its key.
    """
    items = iter(selected)
    item = next(items, None)
    if item is None:
        return
    for message in read_to_end(kafka, partition, start=offset_of(item)):
        offset = message.offset() or 0
        while item is not None and offset_of(item) < offset:
            item = next(items, None)
        if item is not None and offset_of(item) == offset:
            yield record_of(message), item
            item = next(items, None)
        if item is None:
            return
