"""Reading records: a partition to its end, ranges of many at once; and how far that is possible.

The last offset may be a transaction marker, so readers stop by position and never by "last record
seen".
"""

import gc
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from operator import methodcaller
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException, Message

from shardpost.instants import instant_of
from shardpost.kafka.clients import TRANSIENT_ERRORS
from shardpost.kafka.kafka import Kafka, KafkaUnreachableError, Patience
from shardpost.kafka.offsets import watermark_of
from shardpost.kafka.records import (
    HEADERS_LEFT_OUT,
    HEADERS_UNREADABLE,
    NO_TIMESTAMP,
    Coordinates,
    Headers,
    OffsetRange,
    OpenTransaction,
    Record,
    TopicPartition,
)

T = TypeVar("T")
# Where a name is no UTF-8, the client returns a result and leaves an exception behind. CPython
# looks for that in calls from C, and not in calls that its interpreter has specialised.
_headers = methodcaller("headers")


def headers_of(message: Message) -> Headers:
    """Return the headers, in order; one name may stand there more than once.

    Where a name is no UTF-8 the client gives none of them; then one header says so.
    """
    try:
        found = _headers(message)
    except (SystemError, UnicodeDecodeError):
        return [(HEADERS_LEFT_OUT, HEADERS_UNREADABLE)]
    return found if isinstance(found, list) else list((found or {}).items())


def reread_headers(message: Message) -> Headers:
    """Return the headers of a message whose headers may have been asked for before.

    If that failed, the client then gives pairs without a name, and to touch one ends the process.
    """
    found = headers_of(message)
    is_whole = all(len(gc.get_referents(pair)) == len(pair) for pair in found)
    return found if is_whole else [(HEADERS_LEFT_OUT, HEADERS_UNREADABLE)]


def record_of(message: Message, headers: Headers | None = None) -> Record:
    """Return a message that was read, and is no error, as a record; with its headers if known."""
    kind, timestamp = message.timestamp()
    return Record(
        message.key(),
        message.value(),
        headers_of(message) if headers is None else headers,
        timestamp,
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        kind == TIMESTAMP_LOG_APPEND_TIME,
    )


POLL_SECONDS = 0.5
BATCH = 10_000
# The end of a partition is told when a fetch finds nothing: by default half a second later, where
# its last offset is the marker of a transaction.
QUICK_CLIENT = {"enable.partition.eof": True, "fetch.queue.backoff.ms": 10, "fetch.wait.max.ms": 20}


def read_to_end(
    kafka: Kafka,
    partition: TopicPartition,
    *,
    start: int | None = None,
    committed: bool = False,
    uncommitted: bool = False,
) -> Iterator[Message]:
    """Yield the committed records of one partition up to the high watermark as it is now.

    Waits, bounded by `kafka_timeout` without progress, for open transactions below that end to
    finish. With `committed` it ends at the last stable offset instead, and waits for none; with
    `uncommitted` it also yields records that are not committed yet, or were aborted.
    KafkaUnreachableError if there is no progress.
    """
    more: dict[str, Any] = QUICK_CLIENT.copy()
    if uncommitted:
        more["isolation.level"] = "read_uncommitted"
    reader = kafka.consumer("shardpost-reader", **more)
    try:
        low, high = watermark_of(kafka, partition, committed=committed)
        position = max(low, start or 0)
        reader.assign([confluent_kafka.TopicPartition(*partition, position)])
        patience = Patience(kafka)
        while position < high:
            now_at = position
            for message in _next_batch(reader):
                if message.error():
                    now_at = max(now_at, _end_reached(message, kafka))
                elif (message.offset() or 0) < high:
                    yield message
            # The offset behind the last record or marker; negative before the first.
            behind = reader.position([confluent_kafka.TopicPartition(*partition)])[0]
            now_at = max(now_at, behind.offset)
            if now_at > position:
                position = now_at
                patience.progress()
            elif patience.is_over:
                raise KafkaUnreachableError(
                    f"{partition.at(position)}: no progress to the end {high} for"
                    f" {int(patience.seconds)} s: an open transaction, or the broker is gone"
                    " (docs/dead-letters.md: When something is wrong)"
                )
    finally:
        reader.close()


def read_one(kafka: Kafka, partition: TopicPartition, offset: int) -> Record | None:
    """Return the committed record at an offset; None if that is a marker, or was cleaned away."""
    messages = read_to_end(kafka, partition, start=offset, committed=True)
    record = next(map(record_of, messages), None)
    return record if record is not None and record.offset == offset else None


def read_selected(
    kafka: Kafka, partition: TopicPartition, selected: Iterable[T], offset_of: Callable[[T], int]
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


def _next_batch(reader: Consumer) -> list[Message]:
    """Return what is there at once, else wait for one message.

    `consume` would wait for a full batch.
    """
    there = reader.consume(BATCH, 0)
    if there:
        return there
    one = reader.poll(POLL_SECONDS)
    return [] if one is None else [one]  # a message without a value is false


def _end_reached(message: Message, kafka: Kafka) -> int:
    """Return the offset up to which all was read, if this message of an error says so, else 0.

    It may be above the position: aborted records do not move that, and their marker may lie above
    an open transaction. Raises what the message reports, unless it passes by itself.
    """
    error = message.error()
    if error and error.code() == KafkaError._PARTITION_EOF:
        return message.offset() or 0
    if error and error.code() not in TRANSIENT_ERRORS:
        raise kafka.unreachable(KafkaException(error))
    return 0


BULK_POLL_SECONDS = 0.05
BULK_CLIENT = QUICK_CLIENT | {
    # Few records of each are wanted, and all partitions wait in memory at the same time.
    "max.partition.fetch.bytes": 128 << 10,
    "queued.max.messages.kbytes": 16 << 10,
}


class BulkReading:
    """One pass over ranges; `reached` is the offset up to which each was read so far.

    A range ends after `most` records as well. What is not read when the time is over stays so. What
    was deleted is passed over, or KafkaUnreachableError if all is to be read (`whole`).

    It takes 0.9 µs a record beside the client, where `read_to_end`, which has one partition to look
    after, takes 0.1 µs: so there are both, until the client returns batches by partition.
    """

    def __init__(
        self,
        kafka: Kafka,
        ranges: Iterable[OffsetRange],
        *,
        committed: bool,
        most: int,
        whole: bool = False,
    ) -> None:
        self._ranges = {range_.topic_partition: range_ for range_ in ranges}
        self.reached = {partition: range_.first for partition, range_ in self._ranges.items()}
        self._kafka, self._most = kafka, most
        self._client = BULK_CLIENT | {
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "error" if whole else "earliest",
        }
        self._counts = dict.fromkeys(self._ranges, 0)
        self._open = set(self._ranges)

    def messages(self, until: float) -> Generator[Message, None, None]:
        """Yield records, of each partition in their order, until a time of the monotonic clock."""
        if not self._open:
            return
        with self._kafka.kept_consumer("shardpost-reader", **self._client) as reader:
            reader.incremental_assign(
                [confluent_kafka.TopicPartition(*at, r.first) for at, r in self._ranges.items()]
            )
            while self._open and time.monotonic() < until:
                ended: set[TopicPartition] = set()
                left = sum(self._ranges[one].until - self.reached[one] for one in self._open)
                # It waits for as many: no more come.
                for message in reader.consume(min(max(left, 1), BATCH), BULK_POLL_SECONDS):
                    # A plain tuple is equal to a TopicPartition, and sooner made.
                    partition: Any = (message.topic(), message.partition())
                    if partition in self._open and partition not in ended:
                        if self._is_record(partition, message):
                            yield message
                        is_read = self.reached[partition] >= self._ranges[partition].until
                        if is_read or self._counts[partition] >= self._most:
                            ended.add(partition)
                self._leave(reader, ended)
            reader.is_stale = bool(self._open)  # it may not know of a new partition, for one
            self._leave(reader, self._open.copy())

    def _is_record(self, partition: TopicPartition, message: Message) -> bool:
        """Tell whether it is a record of its range; note how far that was read."""
        until, offset = self._ranges[partition].until, message.offset() or 0
        if message.error():
            end = min(_end_reached(message, self._kafka), until)
            self.reached[partition] = max(self.reached[partition], end)
            return False
        self.reached[partition] = min(offset + 1, until)
        self._counts[partition] += 1
        return offset < until

    def _leave(self, reader: Consumer, ended: set[TopicPartition]) -> None:
        if ended:
            self._open -= ended
            reader.incremental_unassign([confluent_kafka.TopicPartition(*one) for one in ended])


def open_transaction_at(kafka: Kafka, begins: Coordinates) -> OpenTransaction:
    """Return the transaction that is open from a last stable offset on.

    KafkaUnreachableError if its partition cannot be read now.
    """
    partition, offset = begins.topic_partition, begins.offset
    first = next(read_to_end(kafka, partition, start=offset, uncommitted=True), None)
    at = NO_TIMESTAMP if first is None else first.timestamp()[1]
    return OpenTransaction(begins, None if at < 0 else instant_of(at))
