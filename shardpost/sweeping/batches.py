"""Records in batches, each bounded in number and in bytes: one transaction each."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from shardpost.domain.records import Record

T = TypeVar("T")

# A batch ends with so many bytes of values, however few records these are.
BATCH_BYTES = 16 << 20


def batches(items: Iterable[T], most: int, record: Callable[[T], Record]) -> Iterator[list[T]]:
    """Yield the items in lists of at most `most`; `record` gives the record of an item."""
    batch: list[T] = []
    size = 0
    for item in items:
        batch.append(item)
        size += len(record(item).value or b"")
        if len(batch) >= most or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def itself(record: Record) -> Record:
    """Return the record: where the items are records."""
    return record
