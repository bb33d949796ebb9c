"""A consumer of the broker in memory."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, KafkaError, Message

from shardpost.kafka.records import TopicPartition
from tests.support.memory_kafka.broker import MemoryBroker, broker_at
from tests.support.memory_kafka.coordinator import (
    GroupMetadata,
    GroupOffset,
    GroupPartition,
    group_offsets,
)
from tests.support.memory_kafka.errors import refused
from tests.support.memory_kafka.log import PartitionLog, Stored


class MemoryConsumer:
    """A consumer with the interface of confluent-kafka's, as far as Shardpost uses it.

    It reads what it is assigned, from explicit offsets, and joins no group.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._address = str(config["bootstrap.servers"])
        self.group = str(config["group.id"])
        self.is_stale = False
        self._committed = config.get("isolation.level", "read_committed") == "read_committed"
        self._reports_end = bool(config.get("enable.partition.eof", False))
        self._positions: dict[TopicPartition, int] = {}
        self._reported_ends: dict[TopicPartition, int] = {}
        self._is_closed = False

    def assign(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._require_open()
        self._positions = {_partition(one): one.offset for one in partitions}
        self._reported_ends = {}

    def unassign(self) -> None:
        self.assign([])

    def position(
        self, partitions: list[confluent_kafka.TopicPartition]
    ) -> list[confluent_kafka.TopicPartition]:
        self._require_open()
        return [
            confluent_kafka.TopicPartition(
                one.topic, one.partition, self._positions.get(_partition(one), OFFSET_INVALID)
            )
            for one in partitions
        ]

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message; None if none comes in so many seconds."""
        found = self.consume(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return what there is, at most so many messages; if nothing, wait for so many seconds."""
        self._require_open()
        found: list[Message] = []

        def has_found() -> bool:
            found.extend(islice(self._messages(), num_messages))
            return bool(found)

        self._wait_for(has_found, timeout)
        return found

    def committed(
        self, partitions: list[confluent_kafka.TopicPartition], timeout: float = -1
    ) -> list[confluent_kafka.TopicPartition]:
        """Return with each partition what the group has committed.

        One that reads committed waits while an open transaction holds another offset.
        """
        self._require_open()
        wanted = [GroupPartition(self.group, _partition(one)) for one in partitions]
        coordinator = self._broker.coordinator

        def is_stable() -> bool:
            return not (self._committed and any(map(coordinator.is_pending, wanted)))

        with self._broker.changed:
            if not self._wait_for(is_stable, timeout):
                raise refused(KafkaError._TIMED_OUT, "Failed to get committed offsets: Timed out")
            return [_committed(one, coordinator.committed(one)) for one in wanted]

    def commit(
        self, *, offsets: list[confluent_kafka.TopicPartition], asynchronous: bool = True
    ) -> list[confluent_kafka.TopicPartition]:
        del asynchronous
        self._require_open()
        with self._broker.changed:
            for one in offsets:
                self._broker.log(_partition(one))
            self._broker.coordinator.commit_offsets(group_offsets(self.group, offsets))
        return offsets

    def consumer_group_metadata(self) -> GroupMetadata:
        return GroupMetadata(self.group)

    def close(self) -> None:
        """End its work; every other call raises RuntimeError then."""
        self._is_closed = True

    @property
    def _broker(self) -> MemoryBroker:
        return broker_at(self._address)

    def _require_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("Consumer closed")

    def _wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        with self._broker.changed:
            return self._broker.changed.wait_for(condition, None if seconds < 0 else seconds)

    def _messages(self) -> Iterator[Message]:
        for partition in self._positions:
            yield from self._messages_of(partition)

    def _messages_of(self, partition: TopicPartition) -> Iterator[Message]:
        """Yield what is there from the position on, which moves with it, then that it is all."""
        log = self._broker.log(partition)
        if not log.low <= self._positions[partition] <= log.end:
            yield _error(partition, self._positions[partition], KafkaError._AUTO_OFFSET_RESET)
            return
        for entry in log.read(self._positions[partition], committed=self._committed):
            self._positions[partition] = entry.offset + 1
            if entry.stored is not None:
                yield _message(partition, entry.offset, entry.stored)
        end = self._end(log)
        if self._reports_end and self._reported_ends.get(partition) != end:
            self._reported_ends[partition] = end
            yield _error(partition, end, KafkaError._PARTITION_EOF)

    def _end(self, log: PartitionLog) -> int:
        return log.last_stable_offset if self._committed else log.end


def _partition(given: confluent_kafka.TopicPartition) -> TopicPartition:
    return TopicPartition(given.topic, given.partition)


def _committed(wanted: GroupPartition, found: GroupOffset | None) -> confluent_kafka.TopicPartition:
    if found is None:
        return confluent_kafka.TopicPartition(*wanted.partition, OFFSET_INVALID)
    return confluent_kafka.TopicPartition(*wanted.partition, found.offset, found.metadata)


def _message(partition: TopicPartition, offset: int, stored: Stored) -> Message:
    key, value, headers, timestamp = stored
    return Message(
        *partition, offset, key, value, headers=list(headers) or None, timestamp=timestamp
    )


def _error(partition: TopicPartition, offset: int, code: int) -> Message:
    return Message(*partition, offset, error=KafkaError(code))
