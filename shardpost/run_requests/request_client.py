"""Asking for a run: the record of the request, and what became of it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Message

from shardpost.decisions import decisions_topic
from shardpost.decisions.decision import Decision
from shardpost.errors import ShardpostError, UsageError
from shardpost.kafka.clients import consumer, producer
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import committed, partition_counts, watermarks_of
from shardpost.kafka.partitioning import partition_of
from shardpost.run_requests import request_topics
from shardpost.run_requests.command_writer import GROUP
from shardpost.run_requests.model.request_status import RequestStatus, status_of
from shardpost.settings import Settings


@dataclass(frozen=True)
class AskedRequest:
    """A request as it lies in its topic; `decided_from`: where decisions on it can begin."""

    key: str
    partition: int
    offset: int
    decided_in: int
    decided_from: int


def ask(settings: Settings, key: str, value: dict[str, object]) -> AskedRequest:
    """Put a request into its topic.

    UsageError for one that would be refused unread; ShardpostError if Kafka does not take it.
    """
    text = _text(settings, key, value)
    topic = settings.topic("run-requests")
    partition = partition_of(key, request_topics.partitions(settings))
    decided = settings.topic("decisions")
    decided_in = partition_of(key, partition_counts(settings, [decided])[decided])
    _, decided_from = watermarks_of(settings, TopicPartition(decided, decided_in), committed=True)
    taken = _produced(settings, topic, key.encode(), text, partition)
    return AskedRequest(key, partition, taken.offset() or 0, decided_in, decided_from)


def _text(settings: Settings, key: str, value: dict[str, object]) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise UsageError(f"request {key!r}: expected JSON, in UTF-8: {error}") from None
    for name, size in (("key", len(key.encode())), ("value", len(text))):
        if size > settings.request_bytes:
            raise UsageError(
                f"request: expected a {name} of at most {settings.request_bytes} bytes"
                f" (SHARDPOST_REQUEST_BYTES), found {size}"
            )
    return text


def request_status(settings: Settings, asked: AskedRequest) -> RequestStatus | None:
    """Return what became of a request so far; None if it was not taken up yet."""
    # In this order: what was committed before the group's place moved on is read after it.
    is_taken = _place(settings, asked.partition) > asked.offset
    entries = [
        entry
        for entry in request_topics.command_entries(settings, asked.partition)
        if entry.key == asked.key
    ]
    return status_of(asked.offset, entries, list(_decisions(settings, asked)), is_taken=is_taken)


def _decisions(settings: Settings, asked: AskedRequest) -> Iterator[Decision]:
    """Yield the decisions on that very request."""
    found = decisions_topic.of_partition(settings, asked.decided_in, asked.decided_from)
    for decision, headers in found:
        is_of_it = headers.get("request-offset") == str(asked.offset).encode()
        if decision.about == asked.key.encode() and is_of_it:
            yield decision


def _place(settings: Settings, partition: int) -> int:
    reader = consumer(settings, GROUP)
    try:
        return (
            committed(settings, reader, TopicPartition(settings.topic("run-requests"), partition))
            or 0
        )
    finally:
        reader.close()


def _produced(settings: Settings, topic: str, key: bytes, value: bytes, partition: int) -> Message:
    """Return the record as Kafka took it."""
    taken: list[tuple[object, Message]] = []
    client = producer(settings)
    client.produce(
        topic,
        key=key,
        value=value,
        partition=partition,
        on_delivery=lambda error, message: taken.append((error, message)),
    )
    client.flush(settings.kafka_timeout)
    if not taken or taken[0][0] is not None:
        why = taken[0][0] if taken else f"no answer within {settings.kafka_timeout:g} s"
        raise ShardpostError(f"{topic}[{partition}]: Kafka did not take the request: {why}")
    return taken[0][1]
