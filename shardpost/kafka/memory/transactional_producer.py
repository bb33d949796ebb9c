"""A transactional producer of the broker in memory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.memory.broker import MemoryBroker
from shardpost.kafka.memory.coordinator import GroupMetadata, ProducerEpoch, group_offsets
from shardpost.kafka.memory.errors import must_abort, refused, wrong_state
from shardpost.kafka.memory.log import PartitionLog, Stored, TransactionState
from shardpost.kafka.memory.producer import MemoryProducer


class _State(StrEnum):
    """Where the producer is; the names are librdkafka's."""

    INIT = "Init"
    READY = "Ready"
    IN_TRANSACTION = "InTransaction"


class MemoryTransactionalProducer(MemoryProducer):
    """A producer with the interface of confluent-kafka's, as far as Shardpost uses it.

    A refused record fails its transaction, which then can only be aborted. A fenced producer learns
    that when it next asks the broker for something, and then fails for ever.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._id = str(config["transactional.id"])
        self._epoch = ProducerEpoch(self._id, -1)
        self._state = _State.INIT
        self._has_contents = False
        self._undelivered = 0
        self._failed: KafkaException | None = None  # until the transaction is aborted
        self._fatal: KafkaException | None = None

    def init_transactions(self, timeout: float = -1) -> None:
        """Fence all older producers of the id, and abort what they left open."""
        del timeout
        self._require(_State.INIT)
        with self._asking() as broker:
            self._epoch = broker.coordinator.fence(self._id)
        self._state = _State.READY

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._require(_State.READY)
        self._state, self._has_contents = _State.IN_TRANSACTION, False

    def produce(self, *args: Any, **kwargs: Any) -> None:
        """Write a record in the transaction; arguments as those of a plain producer."""
        if self._fatal is not None:
            raise refused(KafkaError._FATAL, "Unable to produce message: Local: Fatal error")
        if self._failed is not None or self._state is not _State.IN_TRANSACTION:
            raise refused(KafkaError._STATE, "Unable to produce message: Local: Erroneous state")
        super().produce(*args, **kwargs)

    def poll(self, timeout: float = -1) -> int:
        """Report what became of records; KafkaException if the producer was fenced."""
        if self._fatal is not None:
            raise self._fatal
        return super().poll(timeout)

    def send_offsets_to_transaction(
        self,
        positions: list[confluent_kafka.TopicPartition],
        group_metadata: GroupMetadata,
        timeout: float = -1,
    ) -> None:
        """Commit offsets to a group with the transaction."""
        del timeout
        self._require(_State.IN_TRANSACTION)
        with self._asking() as broker:
            broker.coordinator.add_offsets(
                self._epoch, group_offsets(group_metadata.group, positions)
            )
        self._has_contents = True

    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit what was written since `begin_transaction`."""
        self._require(_State.IN_TRANSACTION)
        if self._undelivered:
            reason = f"{self._undelivered} message(s) failed delivery"
            self._failed = must_abort(KafkaError._INCONSISTENT, reason)
            raise self._failed
        self._end(TransactionState.COMMITTED)
        self.flush(timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort what was written since `begin_transaction`."""
        self._failed, self._undelivered = None, 0
        self._require(_State.IN_TRANSACTION)
        self._end(TransactionState.ABORTED)
        self.flush(timeout)

    def _end(self, state: TransactionState) -> None:
        if self._has_contents:  # else the broker has never heard of the transaction
            with self._asking() as broker:
                broker.coordinator.end(self._epoch, state)
        self._state = _State.READY

    def _require(self, state: _State) -> None:
        self._require_open()
        if (error := self._fatal or self._failed) is not None:
            raise error
        if self._state is not state:
            raise wrong_state(self._state)

    @contextmanager
    def _asking(self) -> Iterator[MemoryBroker]:
        """Give the broker, held, and wake the others that use it; note if it has fenced this."""
        with self._broker.changed:
            try:
                yield self._broker
            except KafkaException as error:
                if error.args[0].fatal():
                    self._fatal = error
                raise
            self._broker.changed.notify_all()

    def _delivered(self, place: TopicPartition, given: Stored) -> int:
        try:
            return super()._delivered(place, given)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                self._failed = must_abort(error.args[0].code(), error.args[0].str())
            else:
                self._undelivered += 1
            raise

    def _append(self, log: PartitionLog, stored: Stored) -> int:
        with self._asking() as broker:
            offset = broker.coordinator.append(self._epoch, log, stored)
        self._has_contents = True
        return offset
