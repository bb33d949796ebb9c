"""Offsets of topics and groups: how many partitions, where they begin and end, what is committed.

High watermarks are asked for with read_uncommitted: under read_committed, librdkafka returns the
last stable offset in their place.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException

from shardpost.errors import ShardpostError
from shardpost.kafka.clients import FIRST_ANSWER_SECONDS, admin, consumer, unreachable
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offset_ranges import Offsets
from shardpost.kafka.patience import Patience
from shardpost.settings import Settings

# A partition has no leader for a moment: it is new, its broker has just started, or another one
# takes over. The last four are librdkafka's: a broker that has just started does not know its
# topics yet, or the connection was lost during a request.
TRANSIENT_LEADER_ERRORS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._TRANSPORT,
    KafkaError._DESTROY_BROKER,
)
LEADER_RETRY_SECONDS = 0.1

T = TypeVar("T")


def partition_counts(
    settings: Settings, topics: list[str], *, if_there: Sequence[str] = ()
) -> dict[str, int]:
    """Return how many partitions each topic has; ShardpostError for one that does not exist.

    Of those that need not be there, only those that are.
    """
    seconds = min(FIRST_ANSWER_SECONDS, settings.kafka_timeout)
    try:
        known = admin(settings).list_topics(timeout=seconds).topics
    except KafkaException as error:
        raise unreachable(settings, error) from None
    missing = [topic for topic in topics if topic not in known]
    if missing:
        raise ShardpostError(
            f"Kafka at {settings.bootstrap} has no topic {', '.join(missing)}:"
            " create it (`shardpost topics apply` creates the declared ones), or correct the"
            " setting that names it"
        )
    there = [*topics, *(topic for topic in if_there if topic in known)]
    return {topic: len(known[topic].partitions) for topic in there}


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


def with_leaders(settings: Settings, ask: Callable[[], T]) -> T:
    """Return what Kafka answers; asks again while there is no leader, as Patience allows.

    KafkaUnreachableError after that, and at once for any other KafkaException.
    """
    patience = Patience(settings)
    while True:
        try:
            return ask()
        except KafkaException as error:
            is_transient = error.args[0].code() in TRANSIENT_LEADER_ERRORS
            if not is_transient or patience.is_over:
                raise unreachable(settings, error) from None
            time.sleep(LEADER_RETRY_SECONDS)


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
