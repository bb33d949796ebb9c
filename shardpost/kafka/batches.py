"""Records in batches that one transaction can hold, whatever their number and their sizes.

A transaction that grows with its input outlives its timeout one day, and then for good.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from shardpost.kafka.records import Outgoing, batch_bytes

MAX_RECORDS = 10_000
MAX_BYTES = 16 << 20
# A batch takes seconds; a dead producer's blocks readers only until the next run, or so long.
TRANSACTION_TIMEOUT_MS = 60_000


class Batch(NamedTuple):
    """Some records, and whether none come after them."""

    records: list[Outgoing]
    is_last: bool


def in_batches(records: Iterable[Outgoing]) -> Iterator[Batch]:
    """Yield the records in batches of at most so many, and so many bytes or a single record.

    The last one is marked; without records it is empty.
    """
    batch: list[Outgoing] = []
    size = 0
    for record in records:
        bytes_ = batch_bytes(record)
        if batch and (len(batch) == MAX_RECORDS or size + bytes_ > MAX_BYTES):
            yield Batch(batch, is_last=False)
            batch, size = [], 0
        batch.append(record)
        size += bytes_
    yield Batch(batch, is_last=True)


def queue_config(largest: int) -> dict[str, Any]:
    """Return settings of a producer that holds no more in memory than about one batch.

    `largest` is the bytes of its largest record. librdkafka's default is a gigabyte.
    """
    kbytes = (max(MAX_BYTES, 2 * largest) >> 10) + 1
    return {
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "queue.buffering.max.kbytes": kbytes,
    }
