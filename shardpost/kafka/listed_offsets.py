"""Offsets of many partitions at once: where they begin and end, or where a time begins."""

from collections.abc import Collection
from concurrent.futures import Future
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from shardpost.kafka.clients import admin
from shardpost.kafka.coordinates import TopicPartition
from shardpost.settings import Settings

AT_ONCE = 2_000


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
    found, wanted = Listed({}, {}), list(partitions)
    if not wanted:
        return found
    client = admin(settings)  # it has to outlive what it asks for
    for start in range(0, len(wanted), AT_ONCE):
        asked = wanted[start : start + AT_ONCE]
        specs = {confluent_kafka.TopicPartition(*partition): spec for partition in asked}
        seconds = settings.kafka_timeout
        futures = client.list_offsets(specs, isolation_level=level, request_timeout=seconds)
        for asked_for, future in futures.items():
            _add(found, TopicPartition(asked_for.topic, asked_for.partition), future)
    return found


def _add(listed: Listed, partition: TopicPartition, future: "Future[Any]") -> None:
    try:
        answer = future.result()
    except KafkaException as error:
        listed.failed[partition] = str(error.args[0].str())
    else:
        listed.found[partition] = ListedOffset(int(answer.offset), int(answer.timestamp))
