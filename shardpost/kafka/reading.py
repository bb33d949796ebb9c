"""Reading one partition to its end.

An end may be a transaction marker, so readers stop by position and never by "last record seen".
"""

import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from shardpost.kafka.clients import KafkaUnreachableError, consumer, unreachable
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import MOVING, bounds
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
    finish. With `committed` it ends before the first open transaction, and waits for none; with
    `uncommitted` it yields also what is not committed, or never was.
    """
    more: dict[str, Any] = {"enable.partition.eof": True, "fetch.queue.backoff.ms": 10}
    if uncommitted:
        more["isolation.level"] = "read_uncommitted"
    reader = consumer(settings, "shardpost-reader", **more)
    try:
        low, high = bounds(settings, partition, committed=committed)
        position = max(low, start or 0)
        reader.assign([confluent_kafka.TopicPartition(*partition, position)])
        deadline = time.monotonic() + settings.kafka_timeout
        while position < high:
            for message in _next_batch(reader):
                if message.error():
                    _refuse(message, settings)
                elif (message.offset() or 0) < high:
                    yield message
            now_at = _position(reader, partition, position)
            if now_at > position:
                position, deadline = now_at, time.monotonic() + settings.kafka_timeout
            elif time.monotonic() > deadline:
                raise KafkaUnreachableError(
                    f"{partition.at(position)}: no progress to the end {high} for"
                    f" {settings.kafka_timeout:g} s: an open transaction, or the broker is gone"
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


def _position(reader: Consumer, partition: TopicPartition, before: int) -> int:
    offset: int = reader.position([confluent_kafka.TopicPartition(*partition)])[0].offset
    return max(before, offset)


def _refuse(message: Message, settings: Settings) -> None:
    """Raise what a reader says of its partition, but for what passes by itself."""
    error = message.error()
    if error and error.code() not in (KafkaError._PARTITION_EOF, *MOVING):
        raise unreachable(settings, KafkaException(error))
