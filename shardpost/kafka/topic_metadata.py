"""Metadata of topics: partitions, leaders, configuration, and whether a topic was recreated.

An id (KIP-516) tells a topic that was deleted and recreated from the one before; one that was
restored or mirrored in another cluster has another id as well. How a topic is configured is asked
and never assumed: what is set on it, else the broker's defaults; it may be older than its
declaration.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, get_args

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

from shardpost.errors import ShardpostError
from shardpost.kafka.clients import LISTEN_SECONDS
from shardpost.kafka.kafka import FIRST_ANSWER_SECONDS, LEADER_SECONDS, Kafka
from shardpost.kafka.records import MAX_BATCH_BYTES, TopicPartition, partition_of
from shardpost.values.topic_names import TopicName


def partition_counts(
    kafka: Kafka, topics: list[str], *, if_there: Sequence[str] = ()
) -> dict[str, int]:
    """Return how many partitions each topic has; ShardpostError for one that does not exist.

    Of those that need not be there, only those that are.
    """
    known = kafka.metadata(FIRST_ANSWER_SECONDS).topics
    missing = [topic for topic in topics if topic not in known]
    if missing:
        declared = {*map(kafka.topic, get_args(TopicName))}
        own = ", ".join(topic for topic in missing if topic in declared)
        raise ShardpostError(
            f"Kafka at {kafka.bootstrap} has no topic {', '.join(missing)}:"
            f" create it{f' (`shardpost topics apply` creates {own})' if own else ''}, or correct"
            " the setting that names it"
        )
    there = [*topics, *(topic for topic in if_there if topic in known)]
    return {topic: len(known[topic].partitions) for topic in there}


def partitions_of(kafka: Kafka, topic: str) -> list[TopicPartition]:
    """Return all partitions of a topic; ShardpostError for one that does not exist."""
    counts = partition_counts(kafka, [topic])
    return [TopicPartition(topic, number) for number in range(counts[topic])]


def partition_with(kafka: Kafka, topic: str, key: str | bytes) -> TopicPartition:
    """Return the partition of a topic that a key is in; ShardpostError for no such topic."""
    return TopicPartition(topic, partition_of(key, partition_counts(kafka, [topic])[topic]))


def is_reachable(kafka: Kafka, seconds: float) -> bool:
    """Tell whether Kafka returns its metadata within `seconds`."""
    if kafka.why_nobody_listens(min(seconds, LISTEN_SECONDS)):
        return False
    try:
        # A client of its own: a broker that is starting may let a connection hang.
        kafka.factories.admin(kafka.config()).list_topics(timeout=seconds)
    except KafkaException:
        return False
    return True


def partition_leaders(kafka: Kafka, topics: Iterable[str]) -> dict[str, dict[int, bool]]:
    """Return {topic: {partition: whether it has a leader}} of those topics that exist."""
    known = kafka.metadata().topics
    return {
        topic: {number: one.leader >= 0 for number, one in sorted(known[topic].partitions.items())}
        for topic in topics
        if topic in known
    }


# What a broker answers that gives no ids (before Kafka 2.8).
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class RecreatedTopicError(ShardpostError):
    """A topic was replaced: its id is not the one that is known."""


def topic_ids(kafka: Kafka, topics: Collection[str]) -> dict[str, str]:
    """Return the id of each topic, as Kafka's own tools print it; none where a broker gives none.

    KafkaUnreachableError if Kafka does not describe one of them in time.
    """
    if not topics:
        return {}
    wanted = TopicCollection(sorted(set(topics)))
    seconds = min(kafka.timeout, LEADER_SECONDS)

    def ask() -> dict[str, str]:
        futures = kafka.admin().describe_topics(wanted, request_timeout=seconds)
        return {topic: str(future.result().topic_id) for topic, future in futures.items()}

    found = kafka.with_leaders(ask)
    return {topic: found[topic] for topic in topics if found[topic] != _NO_ID}


def changed_topics(expected: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with each topic whose id is not the expected one.

    A topic whose id was not known before, or is not known now, is not among them.
    """
    return {
        topic: f"topic {topic}: expected the id {expected[topic]}, found {found[topic]}"
        for topic in expected
        if topic in found and found[topic] != expected[topic]
    }


def require_same_topics(kafka: Kafka, expected: Mapping[str, str], *, advice: str) -> None:
    """Raise RecreatedTopicError, naming all, if topics have other ids; `advice` says what to do."""
    changed = changed_topics(expected, topic_ids(kafka, [*expected]))
    if changed:
        raise RecreatedTopicError(
            f"{'; '.join(changed.values())}: it was deleted and recreated, or belongs to another "
            f"cluster. {advice}"
        )


# {setting: value}; a value is None where Kafka does not say it.
TopicConfig = Mapping[str, str | None]

TOPICS_AT_ONCE = 500
_NOT_ALLOWED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


def topic_configs(kafka: Kafka, topics: Collection[str]) -> dict[str, TopicConfig]:
    """Return {topic: its effective configuration}.

    KafkaUnreachableError if Kafka does not say in time; ShardpostError if it is not allowed to.
    """

    def ask() -> dict[str, TopicConfig]:
        try:
            return {
                topic: {name: entry.value for name, entry in future.result().items()}
                for topic, future in describe_configs(kafka, ResourceType.TOPIC, list(topics))
            }
        except KafkaException as error:
            if error.args[0].code() not in _NOT_ALLOWED:
                raise
            raise ShardpostError(
                f"Kafka at {kafka.bootstrap} does not say how topics are configured"
                f" ({error.args[0].str()}): allow DescribeConfigs on topic(s)"
                f" {', '.join(sorted(topics))} for this user"
            ) from None

    return kafka.with_leaders(ask)


def describe_configs(
    kafka: Kafka, kind: ResourceType, names: Sequence[str]
) -> "Iterator[tuple[str, Future[dict[str, ConfigEntry]]]]":
    """Yield Kafka's answer for each, asked once."""
    client = kafka.admin()
    at_once = TOPICS_AT_ONCE if kind is ResourceType.TOPIC else 1  # each broker says its own
    for start in range(0, len(names), at_once):
        asked = [ConfigResource(kind, name) for name in names[start : start + at_once]]
        seconds = min(kafka.timeout, LEADER_SECONDS)
        futures = client.describe_configs(asked, request_timeout=seconds)
        yield from ((resource.name, future) for resource, future in futures.items())


LARGEST = "max.message.bytes"
# Larger requests are refused by clients (100 MB) and brokers (100 MiB) unless told otherwise.
MOST_BATCH_BYTES = 64 << 20
# librdkafka's default: smaller records go together into batches of at most so many bytes.
BATCH_SIZE = 1_000_000
# What a client may have to send beside one record that is as large as its topic accepts.
REQUEST_BYTES = 64 << 10
# A batch takes seconds; a dead producer's blocks readers only until the next run, or so long.
TRANSACTION_TIMEOUT_MS = 60_000


def topic_config(kafka: Kafka, topic: str) -> TopicConfig:
    """Return the effective configuration of a topic; ShardpostError if Kafka does not return it."""
    config = topic_configs(kafka, [topic])[topic]
    if not config.get(LARGEST):
        raise ShardpostError(f"{topic}: Kafka does not report its {LARGEST}: allow DescribeConfigs")
    return config


def largest_batch(config: TopicConfig) -> int:
    """Return how many bytes a batch of a topic may have; a batch may hold one record."""
    return min(int(config[LARGEST] or 0), MOST_BATCH_BYTES)


def producer_config(config: TopicConfig) -> dict[str, Any]:
    """Return the settings of a producer that writes batches of records as a topic accepts them.

    It holds no more in memory than about one transaction: librdkafka's default is a gigabyte.
    """
    largest = largest_batch(config)
    limits: dict[str, Any] = {
        "message.max.bytes": max(largest + REQUEST_BYTES, BATCH_SIZE),
        "batch.size": min(BATCH_SIZE, largest),
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "queue.buffering.max.kbytes": (max(MAX_BATCH_BYTES, 2 * largest) >> 10) + 1,
    }
    is_zstd = config.get("compression.type") == "zstd"
    return limits | ({"compression.type": "zstd"} if is_zstd else {})
