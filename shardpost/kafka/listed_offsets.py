"""Offsets of many partitions at once: where they begin and end, or where a time begins."""

from collections.abc import Collection
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from shardpost.kafka.clients import admin
from shardpost.kafka.coordinates import TopicPartition
from shardpost.settings import Settings


class ListedOffset(NamedTuple):
    """An offset, and the timestamp (ms) of its record where a time was asked for, else -1."""

    offset: int
    timestamp: int


class Listed(NamedTuple):
    """The offset of each partition that answered; of each other one, why not."""

    found: dict[TopicPartition, ListedOffset]
    failed: dict[TopicPartition, str]


def beginnings(settings: Settings, partitions: Collection[TopicPartition]) -> Listed:
    """Return the low watermarks."""
    spec: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    return _listed(settings, partitions, spec, IsolationLevel.READ_UNCOMMITTED)


def endings(
    settings: Settings, partitions: Collection[TopicPartition], *, committed: bool
) -> Listed:
    """Return the high watermarks; with `committed` the last stable offsets."""
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    spec: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return _listed(settings, partitions, spec, level)


def first_since(settings: Settings, partitions: Collection[TopicPartition], at_ms: int) -> Listed:
    """Return the first records with that timestamp (ms) or a later one; offset -1 where none is."""
    spec: OffsetSpec = OffsetSpec.for_timestamp(max(at_ms, 0))
    return _listed(settings, partitions, spec, IsolationLevel.READ_UNCOMMITTED)


def _listed(
    settings: Settings,
    partitions: Collection[TopicPartition],
    spec: OffsetSpec,
    level: IsolationLevel,
) -> Listed:
    found, failed = Listed({}, {})
    if not partitions:
        return Listed(found, failed)
    asked = {confluent_kafka.TopicPartition(*partition): spec for partition in partitions}
    client = admin(settings)  # it has to outlive what it asks for
    seconds = settings.kafka_timeout
    futures = client.list_offsets(asked, isolation_level=level, request_timeout=seconds)
    for asked_for, future in futures.items():
        partition = TopicPartition(asked_for.topic, asked_for.partition)
        try:
            answer: Any = future.result()
            found[partition] = ListedOffset(int(answer.offset), int(answer.timestamp))
        except KafkaException as error:
            failed[partition] = str(error.args[0].str())
    return Listed(found, failed)
