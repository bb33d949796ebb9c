"""The effective configuration of topics and brokers, and what it means for a producer.

What is set on a topic, else the broker's defaults. It is asked of Kafka and never assumed: a
topic may be older than its declaration.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from shardpost.errors import ShardpostError
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.topic_metadata import (
    LEADER_RETRY_SECONDS,
    LEADER_SECONDS,
    TRANSIENT_ERRORS,
    with_leaders,
)

# {setting: value}; a value is None where Kafka does not say it.
TopicConfig = Mapping[str, str | None]

_NOT_ALLOWED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


def topic_configs(kafka: Kafka, topics: Collection[str]) -> dict[str, TopicConfig]:
    """Return {topic: its effective configuration}.

    KafkaUnreachableError if Kafka does not say in time; ShardpostError if it is not allowed to.
    """
    return with_leaders(kafka, lambda: _effective(kafka, topics))


def _effective(kafka: Kafka, topics: Collection[str]) -> dict[str, TopicConfig]:
    client = kafka.admin()
    try:
        return {
            topic: {name: entry.value for name, entry in future.result().items()}
            for topic, future in _describe(kafka, client, ResourceType.TOPIC, list(topics))
        }
    except KafkaException as error:
        if error.args[0].code() not in _NOT_ALLOWED:
            raise
        raise ShardpostError(
            f"Kafka at {kafka.bootstrap} does not say how topics are configured"
            f" ({error.args[0].str()}): allow DescribeConfigs on topic(s)"
            f" {', '.join(sorted(topics))} for this user"
        ) from None


def _describe(
    kafka: Kafka, client: AdminClient, kind: ResourceType, names: Sequence[str]
) -> "Iterator[tuple[str, Future[dict[str, ConfigEntry]]]]":
    """Yield what Kafka answers of each, asked once."""
    at_once = TOPICS_AT_ONCE if kind is ResourceType.TOPIC else 1  # each broker says its own
    for start in range(0, len(names), at_once):
        asked = [ConfigResource(kind, name) for name in names[start : start + at_once]]
        seconds = min(kafka.timeout, LEADER_SECONDS)
        futures = client.describe_configs(asked, request_timeout=seconds)
        yield from ((resource.name, future) for resource, future in futures.items())


DESCRIBE_SECONDS = 10.0
TOPICS_AT_ONCE = 500


class Described(NamedTuple):
    """{setting: (value, source)}; or None, and why."""

    entries: Mapping[str, tuple[str | None, Literal["topic", "broker", "default"]]] | None
    why: str = ""


def topics_described(kafka: Kafka, topics: Iterable[str]) -> dict[str, Described]:
    """Return the settings of topics that exist."""
    return _with_sources(kafka, ResourceType.TOPIC, list(topics))


def brokers_described(kafka: Kafka, brokers: Iterable[int]) -> dict[int, Described]:
    """Return the settings of brokers, each asked itself."""
    found = _with_sources(kafka, ResourceType.BROKER, [str(one) for one in brokers])
    return {int(broker): described for broker, described in found.items()}


def _with_sources(kafka: Kafka, kind: ResourceType, names: list[str]) -> dict[str, Described]:
    client = kafka.admin()
    deadline = time.monotonic() + min(DESCRIBE_SECONDS, kafka.timeout)
    found: dict[str, Described] = {}
    left = names
    while left:
        failed = list[str]()
        for name, future in _describe(kafka, client, kind, left):
            try:
                entries = future.result().items()
                found[name] = Described({n: (e.value, _source(e.source)) for n, e in entries})
            except KafkaException as error:
                found[name] = Described(None, error.args[0].str())
                if error.args[0].code() in TRANSIENT_ERRORS:
                    failed.append(name)
        left = failed
        if time.monotonic() > deadline:
            break
        time.sleep(LEADER_RETRY_SECONDS if left else 0)
    return found


def _source(source: ConfigSource) -> Literal["topic", "broker", "default"]:
    found = ConfigSource(source)  # a client gives numbers
    if found is ConfigSource.DYNAMIC_TOPIC_CONFIG:
        return "topic"
    return "default" if found is ConfigSource.DEFAULT_CONFIG else "broker"


LARGEST = "max.message.bytes"
# Larger requests are refused by clients (100 MB) and brokers (100 MiB) unless told otherwise.
MOST_BATCH_BYTES = 64 << 20
# librdkafka's default: smaller records go together into batches of at most so many bytes.
BATCH_SIZE = 1_000_000
# What a client may have to send beside one record that is as large as its topic accepts.
REQUEST_BYTES = 64 << 10


def topic_config(kafka: Kafka, topic: str) -> TopicConfig:
    """Return what is in force for a topic; ShardpostError if Kafka does not say."""
    config = topic_configs(kafka, [topic])[topic]
    if not config.get(LARGEST):
        raise ShardpostError(
            f"{topic}: expected Kafka to say its {LARGEST}, found nothing: allow DescribeConfigs"
        )
    return config


def largest_batch(config: TopicConfig) -> int:
    """Return how many bytes a batch of a topic may have; a batch may hold one record."""
    return min(int(config[LARGEST] or 0), MOST_BATCH_BYTES)


def producer_config(config: TopicConfig) -> dict[str, Any]:
    """Return the settings of a producer that writes records as large as a topic accepts."""
    largest = largest_batch(config)
    limits: dict[str, Any] = {
        "message.max.bytes": max(largest + REQUEST_BYTES, BATCH_SIZE),
        "batch.size": min(BATCH_SIZE, largest),
    }
    is_zstd = config.get("compression.type") == "zstd"
    return limits | ({"compression.type": "zstd"} if is_zstd else {})
