"""A Kafka broker in memory, and the addresses under which clients of this process find one."""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Condition

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, Uuid

from shardpost.kafka.records import NOW, TopicPartition
from tests.support.memory_kafka.coordinator import Coordinator
from tests.support.memory_kafka.errors import refused
from tests.support.memory_kafka.log import PartitionLog, Stored

SCHEME = "MEMORY"
MAX_MESSAGE_BYTES = 1_048_588  # Kafka's default
BATCH_BYTES = 70  # what a batch of one record takes besides key, value and headers
# Kafka's defaults, as far as Shardpost asks for them.
DEFAULT_CONFIG = {
    "cleanup.policy": "delete",
    "delete.retention.ms": "86400000",
    "max.message.bytes": str(MAX_MESSAGE_BYTES),
    "message.timestamp.type": "CreateTime",
    "min.compaction.lag.ms": "0",
    "retention.ms": "604800000",
}


def _new_id() -> Uuid:
    bits = uuid.uuid4().int
    return Uuid(*(half - (1 << 63) for half in (bits >> 64, bits & ((1 << 64) - 1))))


@dataclass
class Topic:
    """A topic's partitions, settings and id."""

    logs: list[PartitionLog]
    config: Mapping[str, str] = field(default_factory=dict)
    id: Uuid = field(default_factory=_new_id)

    @property
    def effective_config(self) -> dict[str, str]:
        """Its settings, with the defaults of the others."""
        return {**DEFAULT_CONFIG, **self.config}

    def stored(self, record: Stored, now: int) -> Stored:
        """Return a record with the timestamp that it gets; KafkaException if it is too large."""
        if record.size + BATCH_BYTES > int(self.config.get("max.message.bytes", MAX_MESSAGE_BYTES)):
            raise refused(KafkaError.MSG_SIZE_TOO_LARGE)
        if self.config.get("message.timestamp.type") == "LogAppendTime":
            return record._replace(timestamp=(TIMESTAMP_LOG_APPEND_TIME, now))
        _, given = record.timestamp
        return record._replace(timestamp=(TIMESTAMP_CREATE_TIME, now if given == NOW else given))


def milliseconds_now() -> int:
    return time.time_ns() // 1_000_000


class MemoryBroker:
    """Topics and a coordinator; clients hold `changed` while they use them.

    `now` gives the time of records, in milliseconds since 1970. A test may change the logs by hand:
    `broker.log(partition).compact()`.
    """

    def __init__(self, now: Callable[[], int] = milliseconds_now) -> None:
        self.now = now
        self.changed = Condition()
        self.topics: dict[str, Topic] = {}
        self.coordinator = Coordinator()

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic; KafkaException if there is one of that name."""
        with self.changed:
            if name in self.topics:
                raise refused(KafkaError.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
            self.topics[name] = Topic([PartitionLog() for _ in range(partitions)], config)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and what groups have committed of it; KafkaException if there is none."""
        with self.changed:
            self.topic(name)
            del self.topics[name]
            self.coordinator.forget(name)
            self.changed.notify_all()

    def topic(self, name: str) -> Topic:
        """Return a topic; KafkaException if there is none of that name."""
        if name not in self.topics:
            raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return self.topics[name]

    def log(self, partition: TopicPartition) -> PartitionLog:
        """Return the log of a partition; KafkaException if there is none."""
        logs = self.topic(partition.topic).logs
        if not 0 <= partition.partition < len(logs):
            raise refused(KafkaError._UNKNOWN_PARTITION)
        return logs[partition.partition]


# {address: the broker that clients of this process find under it}
RUNNING: dict[str, MemoryBroker] = {}


def broker_at(address: str) -> MemoryBroker:
    """Return the broker under an address; KafkaException if none runs there."""
    if address not in RUNNING:
        raise refused(KafkaError._TRANSPORT)
    return RUNNING[address]
