"""Create topics, change their settings, add partitions; refusals are explained.

Whether a topic was recreated is asked in topic_metadata.py.
"""

from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from shardpost.errors import ShardpostError
from shardpost.kafka.kafka import Kafka
from shardpost.waiting import attempts

# What somebody else has done at the same time is shown after so long at the most.
SHOWN_SECONDS = 5.0
POLL_SECONDS = 0.1
_REFUSED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


def create_topics(kafka: Kafka, topics: list[NewTopic]) -> tuple[set[str], list[ShardpostError]]:
    """Return the names of the topics that this very call created, and what failed."""
    created, failed = set[str](), list[ShardpostError]()
    if not topics:
        return created, failed
    most = kafka.timeout
    futures = kafka.admin().create_topics(topics, operation_timeout=most, request_timeout=most)
    for name, future in futures.items():
        error = future.exception()
        if error is None:
            created.add(name)
        elif error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            failed.append(_failure(error, f"topic {name} cannot be created", "Create on it"))
    return created, failed


def alter_configs(kafka: Kafka, changes: Mapping[str, Mapping[str, str]]) -> list[ShardpostError]:
    """Set {topic: {setting: value}}, all of a topic at once; return what failed."""
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in values.items()
            ],
        )
        for topic, values in changes.items()
        if values
    ]
    if not resources:
        return []
    futures = kafka.admin().incremental_alter_configs(resources, request_timeout=kafka.timeout)
    by_topic = {resource.name: future for resource, future in futures.items()}
    return _failures(by_topic, "its settings cannot be changed", "AlterConfigs on it")


def add_partitions(kafka: Kafka, counts: Mapping[str, int]) -> list[ShardpostError]:
    """Add partitions up to the given numbers; return what failed. Somebody else may do the same."""
    if not counts:
        return []
    client = kafka.admin()
    futures = client.create_partitions(
        [NewPartitions(topic, count) for topic, count in counts.items()],
        request_timeout=kafka.timeout,
    )
    wait(futures.values())
    left = {
        topic: future
        for topic, future in futures.items()
        if future.exception() is not None and not _has(client, topic, counts[topic])
    }
    return _failures(left, "no partitions can be added", "Alter on it")


def _has(client: AdminClient, topic: str, count: int) -> bool:
    """Tell whether a topic has that many partitions; brokers learn of it one by one."""
    return any(
        len(client.list_topics(topic, timeout=SHOWN_SECONDS).topics[topic].partitions) >= count
        for _ in attempts(SHOWN_SECONDS, POLL_SECONDS)
    )


def _failures(futures: Mapping[str, Future[Any]], what: str, right: str) -> list[ShardpostError]:
    return [
        _failure(error, f"topic {topic}: {what}", right)
        for topic, future in futures.items()
        if (error := future.exception())
    ]


def _failure(error: BaseException, what: str, right: str) -> ShardpostError:
    found = error.args[0]
    advice = f": allow {right} for this user" if found.code() in _REFUSED else ""
    return ShardpostError(f"{what}: {found.str()}{advice}")
