"""An admin client of the broker in memory."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ClusterMetadata,
    NewTopic,
    OffsetSpec,
    PartitionMetadata,
    TopicMetadata,
)

from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.memory.broker import MemoryBroker, Topic, broker_at

T = TypeVar("T")


class ListedOffset(NamedTuple):
    """What `list_offsets` finds of a partition."""

    offset: int


class MemoryAdmin:
    """An admin client with the interface of confluent-kafka's, as far as Shardpost uses it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._address = str(config["bootstrap.servers"])

    @property
    def _broker(self) -> MemoryBroker:
        return broker_at(self._address)

    def list_topics(self, timeout: float = -1) -> ClusterMetadata:
        """Return all topics with their partitions; each of these has a leader."""
        del timeout
        found = ClusterMetadata()
        with self._broker.changed:
            found.topics = {
                name: _metadata(name, topic) for name, topic in self._broker.topics.items()
            }
        return found

    def create_topics(self, new_topics: list[NewTopic], **_: Any) -> dict[str, "Future[None]"]:
        """Create topics; return a future of each."""
        return {topic.topic: _done(self._create, topic) for topic in new_topics}

    def _create(self, topic: NewTopic) -> None:
        count = max(1, topic.num_partitions)
        self._broker.create_topic(topic.topic, count, topic.config or {})

    def list_offsets(
        self,
        topic_partition_offsets: Mapping[confluent_kafka.TopicPartition, OffsetSpec],
        isolation_level: IsolationLevel,
        **_: Any,
    ) -> dict[confluent_kafka.TopicPartition, "Future[ListedOffset]"]:
        """Return a future of the end of each partition, whatever is asked for."""
        committed = isolation_level is IsolationLevel.READ_COMMITTED
        return {one: _done(self._end_of, one, committed) for one in topic_partition_offsets}

    def _end_of(self, partition: confluent_kafka.TopicPartition, committed: bool) -> ListedOffset:
        with self._broker.changed:
            log = self._broker.log(TopicPartition(partition.topic, partition.partition))
            return ListedOffset(log.last_stable_offset if committed else log.end)


def _done(function: Callable[..., T], *args: object) -> "Future[T]":
    """Return a future that has ended as the function did."""
    future: Future[T] = Future()
    try:
        future.set_result(function(*args))
    except KafkaException as error:
        future.set_exception(error)
    return future


def _metadata(name: str, topic: Topic) -> TopicMetadata:
    found = TopicMetadata()
    found.topic = name
    for number in range(len(topic.logs)):
        found.partitions[number] = PartitionMetadata()
        found.partitions[number].id, found.partitions[number].leader = number, 1
    return found
