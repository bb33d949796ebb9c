"""Partitions as they are now: their ends, what Kafka deletes of them, and what is unread.

It is read from the lowest reader of each partition on, then from the next: so many records at a
time, and for some seconds. Where that is too little, the model takes bounds.
"""

import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from shardpost.kafka.coordinates import OffsetRange, TopicPartition
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import beginnings, endings
from shardpost.kafka.reading import BulkReading
from shardpost.kafka.topic_metadata import topic_configs
from shardpost.lag.model.partition import Partition, SeenRecord, Stretch, retention_of


def partitions_now(
    kafka: Kafka, wanted: Collection[TopicPartition], failed: dict[TopicPartition, str]
) -> dict[TopicPartition, Partition]:
    """Return each partition as it is, without what is in it; `failed` gets why one is not known.

    Ends are asked for from the lowest to the highest, so that each is at or above the one before.
    """
    found: dict[TopicPartition, list[int]] = {partition: [] for partition in wanted}
    for ask in (
        beginnings,
        partial(endings, committed=True),
        partial(endings, committed=False),
    ):
        listed = ask(kafka, [*found])
        failed |= listed.failed
        found = {
            partition: [*ends, listed.found[partition].offset]
            for partition, ends in found.items()
            if partition in listed.found
        }
    topics = {partition.topic for partition in found}
    configs = topic_configs(kafka, topics) if topics else {}
    retentions = {topic: retention_of(config) for topic, config in configs.items()}
    return {
        partition: Partition(low, stable, high, retentions[partition.topic])
        for partition, (low, stable, high) in found.items()
    }


MOST_RECORDS = 1_000
# After that, only the lowest reader of each partition is still looked at.
LOOK_SECONDS = 2.0

Partitions = Mapping[TopicPartition, Partition]


def with_unread(
    kafka: Kafka, partitions: Partitions, offsets: Mapping[TopicPartition, Collection[int]]
) -> dict[TopicPartition, Partition]:
    """Return the partitions with what is before readers at these offsets."""
    found = dict(partitions)
    began = time.monotonic()
    until = began + kafka.timeout
    while ranges := _not_known(found, offsets):
        for partition, stretch in _read(kafka, found, ranges, until).items():
            found[partition] = found[partition].with_stretch(stretch)
        until = began + LOOK_SECONDS
        if time.monotonic() >= until:
            break
    return found


def _not_known(
    partitions: Partitions, offsets: Mapping[TopicPartition, Collection[int]]
) -> dict[TopicPartition, int]:
    """Return the lowest offset of each partition from which on nothing was read."""
    lowest = {}
    for partition, found in partitions.items():
        there = [one for one in offsets[partition] if not found.is_known_from(one)]
        if there:
            lowest[partition] = max(min(there), found.low)
    return lowest


def _read(
    kafka: Kafka, partitions: Partitions, starts: Mapping[TopicPartition, int], until: float
) -> dict[TopicPartition, Stretch]:
    """Return what is from there on: first what is committed, then what is behind that."""
    stable = {at: (first, partitions[at].stable) for at, first in starts.items()}
    found = _stretches(kafka, stable, until, committed=True)
    pending = {
        at: (stretch.until, partitions[at].high)
        for at, stretch in found.items()
        if stretch.until >= partitions[at].stable
    }
    for at, stretch in _stretches(kafka, pending, until, committed=False).items():
        found[at] = found[at].joined(stretch)
    return found


def _stretches(
    kafka: Kafka,
    wanted: Mapping[TopicPartition, tuple[int, int]],
    until: float,
    *,
    committed: bool,
) -> dict[TopicPartition, Stretch]:
    """Return a stretch of each {partition: (first, end)}; an empty one where nothing is to read."""
    ranges = {
        at: OffsetRange(*at, first, end) for at, (first, end) in wanted.items() if end > first
    }
    seen: dict[TopicPartition, list[SeenRecord]] = {at: [] for at in wanted}
    reading = BulkReading(kafka, ranges, committed=committed, most=MOST_RECORDS)
    for message in reading.messages(until):
        at: Any = (message.topic(), message.partition())  # equal to a TopicPartition
        offset, (_, timestamp) = message.offset() or 0, message.timestamp()
        seen[at].append(SeenRecord(offset, timestamp, message.value() is None))
    return {
        at: Stretch(first, reading.reached.get(at, first), tuple(seen[at]))
        for at, (first, _) in wanted.items()
    }
