"""An admin client of the broker in memory."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    BrokerMetadata,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    PartitionMetadata,
    TopicDescription,
    TopicMetadata,
)
from confluent_kafka.cimpl import OFFSET_SPEC_EARLIEST, OFFSET_SPEC_LATEST

from shardpost.kafka.records import TopicPartition
from tests.support.memory_kafka.broker import MemoryBroker, Topic, broker_at

T = TypeVar("T")


class ListedOffset(NamedTuple):
    offset: int
    timestamp: int = -1


NOWHERE = ListedOffset(-1)


class MemoryAdmin:
    """An admin client with the interface of confluent-kafka's, as far as Shardpost uses it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._address = str(config["bootstrap.servers"])

    @property
    def _broker(self) -> MemoryBroker:
        return broker_at(self._address)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return all topics with their partitions, and whether each of these has a leader.

        Of one that is named, only that.
        """
        del timeout
        found = ClusterMetadata()
        found.brokers = {1: BrokerMetadata()}
        with self._broker.changed:
            found.topics = {
                name: _metadata(name, found_topic)
                for name, found_topic in self._broker.topics.items()
                if topic in {None, name}
            }
        return found

    def create_topics(self, new_topics: list[NewTopic], **_: Any) -> dict[str, "Future[None]"]:
        return {topic.topic: _done(self._create, topic) for topic in new_topics}

    def _create(self, topic: NewTopic) -> None:
        count = max(1, topic.num_partitions)
        self._broker.create_topic(topic.topic, count, topic.config or {})

    def delete_topics(self, topics: list[str], **_: Any) -> dict[str, "Future[None]"]:
        return {topic: _done(self._broker.delete_topic, topic) for topic in topics}

    def describe_topics(
        self, topics: TopicCollection, **_: Any
    ) -> dict[str, "Future[TopicDescription]"]:
        return {name: _done(self._described, name) for name in topics.topic_names}

    def _described(self, name: str) -> TopicDescription:
        with self._broker.changed:
            return TopicDescription(name, self._broker.topic(name).id, False, [])

    def describe_configs(
        self, resources: list[ConfigResource], **_: Any
    ) -> dict[ConfigResource, "Future[dict[str, ConfigEntry]]"]:
        return {one: _done(self._configured, one.name) for one in resources}

    def _configured(self, name: str) -> dict[str, ConfigEntry]:
        with self._broker.changed:
            topic = self._broker.topic(name)
            return {
                key: ConfigEntry(key, value, _source(key in topic.config))
                for key, value in topic.effective_config.items()
            }

    def incremental_alter_configs(
        self, resources: list[ConfigResource], **_: Any
    ) -> dict[ConfigResource, "Future[None]"]:
        return {one: _done(self._configure, one) for one in resources}

    def _configure(self, resource: ConfigResource) -> None:
        with self._broker.changed:
            topic = self._broker.topic(resource.name)
            given = {entry.name: str(entry.value) for entry in resource.incremental_configs}
            topic.config = {**topic.config, **given}

    def list_offsets(
        self,
        topic_partition_offsets: Mapping[confluent_kafka.TopicPartition, OffsetSpec],
        isolation_level: IsolationLevel,
        **_: Any,
    ) -> dict[confluent_kafka.TopicPartition, "Future[ListedOffset]"]:
        """Return a future of the offset of each partition: its low end, its end, or a time's."""
        committed = isolation_level is IsolationLevel.READ_COMMITTED
        return {
            one: _done(self._offset_of, one, spec._value, committed)
            for one, spec in topic_partition_offsets.items()
        }

    def _offset_of(
        self, partition: confluent_kafka.TopicPartition, spec: int, committed: bool
    ) -> ListedOffset:
        with self._broker.changed:
            log = self._broker.log(TopicPartition(partition.topic, partition.partition))
            if spec == OFFSET_SPEC_EARLIEST:
                return ListedOffset(log.low)
            if spec == OFFSET_SPEC_LATEST:
                return ListedOffset(log.last_stable_offset if committed else log.end)
            times = (
                ListedOffset(entry.offset, entry.stored.timestamp[1])
                for entry in log.read(log.low, committed=False)
                if entry.stored is not None
            )
            return next((found for found in times if found.timestamp >= spec), NOWHERE)


def _done(function: Callable[..., T], *args: object) -> "Future[T]":
    """Return a future that has ended as the function did."""
    future: Future[T] = Future()
    try:
        future.set_result(function(*args))
    except KafkaException as error:
        future.set_exception(error)
    return future


def _source(is_given: bool) -> ConfigSource:
    return ConfigSource.DYNAMIC_TOPIC_CONFIG if is_given else ConfigSource.DEFAULT_CONFIG


def _metadata(name: str, topic: Topic) -> TopicMetadata:
    found = TopicMetadata()
    found.topic = name
    for number, log in enumerate(topic.logs):
        found.partitions[number] = PartitionMetadata()
        found.partitions[number].id = number
        found.partitions[number].leader = 1 if log.has_leader else -1
        found.partitions[number].replicas = found.partitions[number].isrs = [1]
    return found
