"""A Kafka broker in memory, and the addresses under which clients of this process find one."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError

from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.memory.coordinator import Coordinator
from shardpost.kafka.memory.errors import refused
from shardpost.kafka.memory.log import PartitionLog, Stored
from shardpost.kafka.records import NOW

SCHEME = "memory://"
MAX_MESSAGE_BYTES = 1_048_588  # Kafka's default
BATCH_BYTES = 70  # what a batch of one record takes besides key, value and headers


@dataclass
class Topic:
    """A topic's partitions and settings."""

    logs: list[PartitionLog]
    config: Mapping[str, str] = field(default_factory=dict)

    def stored(self, record: Stored, now: int) -> Stored:
        """Return a record with the timestamp that it gets; KafkaException if it is too large."""
        if record.size + BATCH_BYTES > int(self.config.get("max.message.bytes", MAX_MESSAGE_BYTES)):
            raise refused(KafkaError.MSG_SIZE_TOO_LARGE)
        if self.config.get("message.timestamp.type") == "LogAppendTime":
            return record._replace(timestamp=(TIMESTAMP_LOG_APPEND_TIME, now))
        _, given = record.timestamp
        return record._replace(timestamp=(TIMESTAMP_CREATE_TIME, now if given == NOW else given))


def milliseconds_now() -> int:
    """Return the time in milliseconds since 1970."""
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

    def log(self, partition: TopicPartition) -> PartitionLog:
        """Return the log of a partition; KafkaException if there is none."""
        if partition.topic not in self.topics:
            raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        logs = self.topics[partition.topic].logs
        if not 0 <= partition.partition < len(logs):
            raise refused(KafkaError._UNKNOWN_PARTITION)
        return logs[partition.partition]


_running: dict[str, MemoryBroker] = {}


@contextmanager
def running(address: str, now: Callable[[], int] = milliseconds_now) -> Iterator[MemoryBroker]:
    """Run a broker that clients of this process find under an address; it begins `memory://`."""
    if not is_in_memory(address) or address in _running:
        raise ValueError(f"expected an address of its own that begins {SCHEME}, found {address!r}")
    _running[address] = MemoryBroker(now)
    try:
        yield _running[address]
    finally:
        del _running[address]


def is_in_memory(address: str) -> bool:
    """Tell whether an address is one of a broker in memory, running or not."""
    return address.startswith(SCHEME)


def broker_at(address: str) -> MemoryBroker:
    """Return the broker under an address; KafkaException if none runs there."""
    if address not in _running:
        raise refused(KafkaError._TRANSPORT)
    return _running[address]
