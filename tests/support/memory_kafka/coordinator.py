"""Transactions with fencing, and the offsets of groups, of the broker in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import confluent_kafka

from shardpost.kafka.records import TopicPartition
from tests.support.memory_kafka.errors import fenced
from tests.support.memory_kafka.log import PartitionLog, Stored, Transaction, TransactionState


class GroupPartition(NamedTuple):
    """A partition, as a consumer group reads it."""

    group: str
    partition: TopicPartition


class GroupMetadata(NamedTuple):
    """What a producer is given of the group whose offsets it commits."""

    group: str


class GroupOffset(NamedTuple):
    """What a group has committed of a partition."""

    offset: int
    metadata: str


class ProducerEpoch(NamedTuple):
    """A producer under a transactional id; fenced once the id has a higher epoch."""

    transactional_id: str
    epoch: int


@dataclass
class _Open:
    """What an open transaction has written so far."""

    transaction: Transaction = field(default_factory=Transaction)
    logs: list[PartitionLog] = field(default_factory=list)
    offsets: dict[GroupPartition, GroupOffset] = field(default_factory=dict)


class Coordinator:
    """What Kafka's coordinators of transactions and groups know.

    Whatever a fenced producer asks for raises KafkaException.
    """

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}
        self._open: dict[str, _Open] = {}
        self._committed: dict[GroupPartition, GroupOffset] = {}

    def fence(self, transactional_id: str) -> ProducerEpoch:
        """Fence all producers of the id, abort what they left open; return the new one."""
        self._end(transactional_id, TransactionState.ABORTED)
        epoch = self._epochs.get(transactional_id, -1) + 1
        self._epochs[transactional_id] = epoch
        return ProducerEpoch(transactional_id, epoch)

    def append(self, producer: ProducerEpoch, log: PartitionLog, stored: Stored) -> int:
        """Append a record in the producer's transaction; return its offset."""
        self._require_current(producer, "add partitions to transaction")
        found = self._open.setdefault(producer.transactional_id, _Open())
        if found.transaction not in log.open:
            found.logs.append(log)
        return log.append(stored, found.transaction)

    def add_offsets(
        self, producer: ProducerEpoch, offsets: Mapping[GroupPartition, GroupOffset]
    ) -> None:
        """Have offsets committed with the producer's transaction."""
        self._require_current(producer, "add offsets to transaction")
        self._open.setdefault(producer.transactional_id, _Open()).offsets.update(offsets)

    def end(self, producer: ProducerEpoch, state: TransactionState) -> None:
        self._require_current(producer, "end transaction")
        self._end(producer.transactional_id, state)

    def _end(self, transactional_id: str, state: TransactionState) -> None:
        found = self._open.pop(transactional_id, None)
        if found is None:
            return
        found.transaction.state = state
        for log in found.logs:
            log.end_transaction(found.transaction)
        if state is TransactionState.COMMITTED:
            self._committed |= found.offsets

    def _require_current(self, producer: ProducerEpoch, doing: str) -> None:
        if self._epochs[producer.transactional_id] != producer.epoch:
            raise fenced(doing)

    def commit_offsets(self, offsets: Mapping[GroupPartition, GroupOffset]) -> None:
        self._committed |= offsets

    def forget(self, topic: str) -> None:
        """Forget what all groups have committed of a topic, which was deleted."""
        self._committed = {
            at: offset for at, offset in self._committed.items() if at.partition.topic != topic
        }

    def forget_group(self, group: str) -> None:
        """Forget what a group has committed: it expired."""
        self._committed = {at: one for at, one in self._committed.items() if at.group != group}

    def committed(self, wanted: GroupPartition) -> GroupOffset | None:
        return self._committed.get(wanted)

    def is_pending(self, wanted: GroupPartition) -> bool:
        """Tell whether an open transaction may yet move the group's offset."""
        return any(wanted in found.offsets for found in self._open.values())


def group_offsets(
    group: str, offsets: list[confluent_kafka.TopicPartition]
) -> dict[GroupPartition, GroupOffset]:
    return {
        GroupPartition(group, TopicPartition(one.topic, one.partition)): GroupOffset(
            one.offset, one.metadata or ""
        )
        for one in offsets
    }
