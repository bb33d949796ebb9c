"""Reading one partition to its end.

The last offset may be a transaction marker, so readers stop by position and never by "last record
seen".
"""

from collections.abc import Iterator
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from shardpost.kafka.clients import KafkaUnreachableError, consumer, unreachable
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import TRANSIENT_LEADER_ERRORS, watermarks_of
from shardpost.kafka.patience import Patience
from shardpost.settings import Settings

POLL_SECONDS = 0.5
BATCH = 10_000


def read_to_end(
    settings: Settings,
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
    more: dict[str, Any] = {"enable.partition.eof": True, "fetch.queue.backoff.ms": 10}
    if uncommitted:
        more["isolation.level"] = "read_uncommitted"
    reader = consumer(settings, "shardpost-reader", **more)
    try:
        low, high = watermarks_of(settings, partition, committed=committed)
        position = max(low, start or 0)
        reader.assign([confluent_kafka.TopicPartition(*partition, position)])
        patience = Patience(settings)
        while position < high:
            now_at = position
            for message in _next_batch(reader):
                if message.error():
                    now_at = max(now_at, _end_reached(message, settings))
                elif (message.offset() or 0) < high:
                    yield message
            now_at = max(now_at, _position(reader, partition))
            if now_at > position:
                position = now_at
                patience.progress()
            elif patience.is_over:
                raise KafkaUnreachableError(
                    f"{partition.at(position)}: no progress to the end {high} for"
                    f" {int(patience.seconds)} s: an open transaction, or the broker is gone"
                    " (docs/dead-letters-operations.md: When something is wrong)"
                )
    finally:
        reader.close()


def _next_batch(reader: Consumer) -> list[Message]:
    """Return what is there at once, else wait for one message.

    `consume` would wait for a full batch.
    """
    there = reader.consume(BATCH, 0)
    if there:
        return there
    one = reader.poll(POLL_SECONDS)
    return [] if one is None else [one]  # a message without a value is false


def _position(reader: Consumer, partition: TopicPartition) -> int:
    """Return the offset behind the last record or marker; negative before the first."""
    offset: int = reader.position([confluent_kafka.TopicPartition(*partition)])[0].offset
    return offset


def _end_reached(message: Message, settings: Settings) -> int:
    """Return the offset up to which all was read, if the message says so, else 0.

    It may be above the position: aborted records do not move that, and their marker may lie above
    an open transaction. Raises what the message reports, unless it passes by itself.
    """
    error = message.error()
    if error and error.code() == KafkaError._PARTITION_EOF:
        return message.offset() or 0
    if error and error.code() not in TRANSIENT_LEADER_ERRORS:
        raise unreachable(settings, KafkaException(error))
    return 0
