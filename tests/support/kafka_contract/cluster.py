"""The Kafka that a contract is tested on, and what its tests do to it."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, Message, Producer
from confluent_kafka.cimpl import NewTopic

from shardpost.kafka import clients
from shardpost.kafka.offsets import watermarks
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Outgoing, TopicPartition
from shardpost.kafka.transactions import Transactions, anyone
from shardpost.settings import Settings
from tests.support.installed import installed
from tests.support.recreated_topic import recreate_topic
from tests.support.transactions import begun_transaction

Keys = list[tuple[bytes | None, bytes | None]]


@dataclass(frozen=True)
class Cluster:
    """A Kafka under test: how it is reached, and how its logs are changed by hand.

    `compact` takes a topic's superseded records away, at once; it may write records of the key
    `filler` for that. `delete_before` makes an offset the low watermark.
    """

    settings: Settings
    compact: Callable[[TopicPartition], None]
    delete_before: Callable[[TopicPartition, int], None]

    @property
    def impatient(self) -> Settings:
        """Settings of who waits for a second only."""
        return self.settings.model_copy(update={"kafka_timeout": 1})

    def topic(self, partitions: int = 1, **config: str) -> TopicPartition:
        """Create a topic, with settings whose dots are underscores; return its partition 0."""
        name = f"topic-{uuid.uuid4().hex[:8]}"
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        client = installed(self.settings).kafka.admin()
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dotted)
        client.create_topics([new])[name].result(20)
        watermarks(
            installed(self.settings).kafka, {name: partitions}, committed=True
        )  # it has a leader
        return TopicPartition(name, 0)

    def recreate(self, partition: TopicPartition) -> None:
        """Delete a topic, and create one of the same name, with one partition."""
        recreate_topic(self.settings, partition.topic)

    def put(self, partition: TopicPartition, *records: tuple[bytes | None, bytes | None]) -> None:
        """Produce (key, value) outside of transactions."""
        producer = installed(self.settings).kafka.producer()
        for key, value in records:
            producer.produce(partition.topic, value, key, partition.partition)
        assert producer.flush(20) == 0

    def writer(self, transactional_id: str) -> Transactions:
        """Return an open writer; its errors are `fenced` and `failed: …`."""
        made = Transactions(
            installed(self.settings).kafka,
            transactional_id,
            may_write=anyone,
            fenced="fenced",
            failed="failed: {reason}",
        )
        made.open()
        return made

    @contextmanager
    def open_transaction(
        self, *partitions: TopicPartition, transactional_id: str | None = None
    ) -> Iterator[Producer]:
        """Give a stranger's transaction that has written one record to each partition."""
        id_ = transactional_id or f"stranger-{partitions[0].topic}"
        stranger = begun_transaction(self.settings, id_)
        for partition in partitions:
            stranger.produce(partition.topic, b"open", b"stranger", partition.partition)
        stranger.flush(20)
        yield stranger

    @contextmanager
    def group(self, name: str, **config: object) -> Iterator[clients.GroupConsumer]:
        reader = installed(self.settings).kafka.consumer(name, **config)
        yield reader
        reader.close()

    def read(self, partition: TopicPartition, **how: bool | int) -> Keys:
        """Return (key, value) of what `read_to_end` yields."""
        return pairs(read_to_end(installed(self.settings).kafka, partition, **how))  # type: ignore[arg-type]


def record(partition: TopicPartition, key: bytes, value: bytes | None = b"v") -> Outgoing:
    return Outgoing(partition.topic, key, value, [], partition.partition)


def pairs(messages: Iterable[Message]) -> Keys:
    return [(message.key(), message.value()) for message in messages]


def of(
    partition: TopicPartition, offset: int = OFFSET_INVALID, metadata: str = ""
) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(*partition, offset, metadata)
