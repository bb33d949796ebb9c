"""Offsets: where partitions begin and end, where a time begins, what groups have committed.

High watermarks are asked for with read_uncommitted: under read_committed, librdkafka returns the
last stable offset in their place.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import Consumer, IsolationLevel, KafkaException
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from shardpost.kafka.clients import admin, consumer, unreachable
from shardpost.kafka.coordinates import Offsets, TopicPartition
from shardpost.kafka.topic_configs import topic_configs
from shardpost.kafka.topic_metadata import partition_counts, with_leaders
from shardpost.settings import Settings


def watermarks(
    settings: Settings, counts: Mapping[str, int], *, committed: bool
) -> dict[str, dict[int, tuple[int, int]]]:
    """Return {topic: {partition: (low, high)}} of topics with so many partitions.

    With `committed`, high is the last stable offset: the end of what readers of committed records
    are given; otherwise the high watermark. KafkaUnreachableError after `kafka_timeout`.
    """
    with _watermark_consumer(settings, committed=committed) as reader:
        return {
            topic: {
                partition: _query(settings, reader, TopicPartition(topic, partition))
                for partition in range(count)
            }
            for topic, count in counts.items()
        }


def watermarks_of(
    settings: Settings, partition: TopicPartition, *, committed: bool
) -> tuple[int, int]:
    """Return (low, high) of one partition, as `watermarks` does."""
    with _watermark_consumer(settings, committed=committed) as reader:
        return _query(settings, reader, partition)


@contextmanager
def _watermark_consumer(settings: Settings, *, committed: bool) -> Iterator[Consumer]:
    isolation = "read_committed" if committed else "read_uncommitted"
    reader = consumer(settings, "shardpost-watermarks", **{"isolation.level": isolation})
    try:
        yield reader
    finally:
        reader.close()


def _query(settings: Settings, reader: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """Return (low, high) of one partition."""
    asked, timeout = confluent_kafka.TopicPartition(*partition), settings.kafka_timeout
    low, high = with_leaders(settings, lambda: reader.get_watermark_offsets(asked, timeout=timeout))
    return low, high


def committed(settings: Settings, reader: Consumer, partition: TopicPartition) -> int | None:
    """Return the offset that the reader's group has committed; None where it has none."""
    found = committed_with_metadata(settings, reader, partition)
    return None if found is None else found.offset


class CommittedOffset(NamedTuple):
    """An offset that a group has committed, and the metadata with it."""

    offset: int
    metadata: str | None


def committed_with_metadata(
    settings: Settings, reader: Consumer, partition: TopicPartition
) -> CommittedOffset | None:
    """Return the offset that the reader's group has committed, and its metadata; None if none."""
    try:
        asked = [confluent_kafka.TopicPartition(*partition)]
        [found] = reader.committed(asked, timeout=settings.kafka_timeout)
    except KafkaException as error:
        raise unreachable(settings, error) from None
    return CommittedOffset(int(found.offset), found.metadata or None) if found.offset >= 0 else None


def committed_metadata(
    settings: Settings, reader: Consumer, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, str | None]:
    """Return the metadata that the reader's group has committed with its offsets; None if none."""
    asked = [confluent_kafka.TopicPartition(*partition) for partition in partitions]
    try:
        found = reader.committed(asked, timeout=settings.kafka_timeout)
    except KafkaException as error:
        raise unreachable(settings, error) from None
    return {TopicPartition(one.topic, one.partition): one.metadata or None for one in found}


def commit_offsets(settings: Settings, group: str, offsets: Offsets) -> None:
    """Commit offsets to a consumer group without being its member, for lag tools to see."""
    committing = [
        confluent_kafka.TopicPartition(topic, partition, offset)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    ]
    client = consumer(settings, group)
    try:
        client.commit(offsets=committing, asynchronous=False)
    except KafkaException as error:
        raise unreachable(settings, error) from None
    finally:
        client.close()


PARTITIONS_AT_ONCE = 2_000


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


def first_offsets_since(
    settings: Settings, partitions: Collection[TopicPartition], at_ms: int
) -> Listed:
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
    for start in range(0, len(wanted), PARTITIONS_AT_ONCE):
        asked = wanted[start : start + PARTITIONS_AT_ONCE]
        specs = {confluent_kafka.TopicPartition(*partition): spec for partition in asked}
        seconds = settings.kafka_timeout
        futures = client.list_offsets(specs, isolation_level=level, request_timeout=seconds)
        for asked_for, future in futures.items():
            _add_answer(found, TopicPartition(asked_for.topic, asked_for.partition), future)
    return found


def _add_answer(listed: Listed, partition: TopicPartition, future: "Future[Any]") -> None:
    try:
        answer = future.result()
    except KafkaException as error:
        listed.failed[partition] = str(error.args[0].str())
    else:
        listed.found[partition] = ListedOffset(int(answer.offset), int(answer.timestamp))


class EndWatch:
    """The partitions of one topic, as a consumer group sees them.

    Its clients stay connected until `close`. Raises KafkaUnreachableError if Kafka does not answer.
    """

    def __init__(self, settings: Settings, topic: str, partitions: int, group: str) -> None:
        self._settings = settings
        self._partitions = [
            confluent_kafka.TopicPartition(topic, number) for number in range(partitions)
        ]
        self._admin = admin(settings)
        self._group = consumer(settings, group)

    def stable_ends(self) -> dict[int, int]:
        """Return {partition: last stable offset}."""
        wanted = {one: OffsetSpec.latest() for one in self._partitions}  # type: ignore[no-untyped-call]
        try:
            futures = self._admin.list_offsets(
                wanted,
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=self._settings.kafka_timeout,
            )
            return {one.partition: future.result().offset for one, future in futures.items()}
        except KafkaException as error:
            raise unreachable(self._settings, error) from None

    def committed_offsets(self) -> dict[int, int]:
        """Return {partition: offset that the group has committed}; 0 where it has none."""
        try:
            found = self._group.committed(self._partitions, timeout=self._settings.kafka_timeout)
        except KafkaException as error:
            raise unreachable(self._settings, error) from None
        return {one.partition: max(0, one.offset) for one in found}

    def close(self) -> None:
        """Close the connections."""
        self._group.close()


NO_TIME = -1


def newest_time(settings: Settings, topic: str) -> datetime | None:
    """Return the latest time that the broker gave to a record of the topic.

    None if it has no records, or has the times of their producers. ShardpostError for a topic that
    does not exist.
    """
    count = partition_counts(settings, [topic])[topic]
    if topic_configs(settings, [topic])[topic].get("message.timestamp.type") != "LogAppendTime":
        return None
    latest: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
    asked = {confluent_kafka.TopicPartition(topic, partition): latest for partition in range(count)}
    client = admin(settings)  # it has to outlive what it asks for
    try:
        futures = client.list_offsets(asked, request_timeout=settings.kafka_timeout)
        newest = max(int(future.result().timestamp) for future in futures.values())
    except KafkaException as error:
        raise unreachable(settings, error) from None
    return None if newest == NO_TIME else datetime.fromtimestamp(newest / 1000, UTC)


def first_offset_since(settings: Settings, partition: TopicPartition, at: datetime) -> int:
    """Return the offset of the first record of a partition with that timestamp or a later one.

    The end of the partition if there is none. What lies above may have earlier timestamps.
    """
    _, end = watermarks_of(settings, partition, committed=False)
    asked = confluent_kafka.TopicPartition(*partition, int(at.timestamp() * 1000))
    # What an open transaction hides counts too: it may be read by the time that the answer is used.
    reader = consumer(settings, "shardpost-reader", **{"isolation.level": "read_uncommitted"})
    try:
        [found] = reader.offsets_for_times([asked], timeout=settings.kafka_timeout)
    except KafkaException as error:
        raise unreachable(settings, error) from None
    finally:
        reader.close()
    return end if found.offset < 0 else int(found.offset)
