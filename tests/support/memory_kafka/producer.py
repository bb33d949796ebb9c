"""Producers of the broker in memory: a plain one, and a transactional one.

They raise and report what librdkafka does.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message
from confluent_kafka.admin import BrokerMetadata, ClusterMetadata  # type: ignore[attr-defined]

from shardpost.kafka.records import BY_KEY, NOW, Headers, TopicPartition, partition_of
from tests.support.memory_kafka.broker import MemoryBroker, broker_at
from tests.support.memory_kafka.coordinator import GroupMetadata, ProducerEpoch, group_offsets
from tests.support.memory_kafka.errors import must_abort, refused, wrong_state
from tests.support.memory_kafka.log import PartitionLog, Stored, TransactionState

MAX_MESSAGE_BYTES = 1_000_000  # librdkafka's default of message.max.bytes

OnDelivery = Callable[[KafkaError | None, Message], None]
GivenHeaders = Mapping[str, str | bytes | None] | Headers


class MemoryProducer:
    """A producer with the interface of confluent-kafka's, as far as Shardpost uses it.

    A record is in its log when `produce` returns; `poll` and `flush` report what became of it.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._address = str(config["bootstrap.servers"])
        self._max_bytes = int(config.get("message.max.bytes", MAX_MESSAGE_BYTES))
        self._reports: list[tuple[OnDelivery, KafkaError | None, Message]] = []
        self._without_key = 0
        self._is_closed = False

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = BY_KEY,
        on_delivery: OnDelivery | None = None,
        timestamp: int = NOW,
        headers: GivenHeaders | None = None,
    ) -> None:
        """Write a record; what only a broker refuses is reported, not raised."""
        self._require_open()
        given = Stored(_bytes(key), _bytes(value), _headers(headers), (0, timestamp))
        if given.size > self._max_bytes:
            raise refused(KafkaError.MSG_SIZE_TOO_LARGE, "Unable to produce message: too large")
        with self._broker.changed:
            place = self._placed(topic, given.key, partition)
            try:
                offset = self._delivered(place, given)
            except KafkaException as error:
                self._report(on_delivery, error.args[0], place, OFFSET_INVALID, given)
            else:
                self._report(on_delivery, None, place, offset, given)
                self._broker.changed.notify_all()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return when a broker answers: that there is one."""
        del topic, timeout
        found = ClusterMetadata()
        found.brokers = {1: BrokerMetadata()} if self._broker else {}
        return found

    def poll(self, timeout: float = -1) -> int:
        """Report what became of records; return of how many."""
        del timeout
        self._require_open()
        reports, self._reports = self._reports, []
        for on_delivery, error, message in reports:
            on_delivery(error, message)
        return len(reports)

    def flush(self, timeout: float = -1) -> int:
        """Report what became of all records; return how many are not delivered yet: none."""
        self.poll(timeout)
        return 0

    def close(self) -> bool:
        """End its work; every other call raises RuntimeError then."""
        self._is_closed = True
        return True

    @property
    def _broker(self) -> MemoryBroker:
        return broker_at(self._address)

    def _require_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("Producer has been closed")

    def _placed(self, topic: str, key: bytes | None, partition: int) -> TopicPartition:
        """Return where a record goes: as told, by its key, or in turns if it has none."""
        count = len(self._broker.topics[topic].logs) if topic in self._broker.topics else 1
        if partition == BY_KEY and key is None:
            self._without_key += 1
            partition = self._without_key % count
        elif partition == BY_KEY and key is not None:
            partition = partition_of(key, count)
        return TopicPartition(topic, partition)

    def _delivered(self, place: TopicPartition, given: Stored) -> int:
        """Append a record and return its offset; KafkaException if the broker refuses it."""
        log = self._broker.log(place)
        stored = self._broker.topics[place.topic].stored(given, self._broker.now())
        return self._append(log, stored)

    def _append(self, log: PartitionLog, stored: Stored) -> int:
        return log.append(stored, None)

    def _report(
        self,
        on_delivery: OnDelivery | None,
        error: KafkaError | None,
        place: TopicPartition,
        offset: int,
        given: Stored,
    ) -> None:
        if on_delivery is not None:
            message = Message(
                place.topic, place.partition, offset, given.key, given.value, error=error
            )
            self._reports.append((on_delivery, error, message))


def _bytes(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given


def _headers(given: GivenHeaders | None) -> Headers:
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    return [(name, _bytes(value)) for name, value in pairs]


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
        self._require(_State.READY)
        self._state, self._has_contents = _State.IN_TRANSACTION, False

    def produce(self, *args: Any, **kwargs: Any) -> None:
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
        del timeout
        self._require(_State.IN_TRANSACTION)
        with self._asking() as broker:
            broker.coordinator.add_offsets(
                self._epoch, group_offsets(group_metadata.group, positions)
            )
        self._has_contents = True

    def commit_transaction(self, timeout: float = -1) -> None:
        self._require(_State.IN_TRANSACTION)
        if self._undelivered:
            reason = f"{self._undelivered} message(s) failed delivery"
            self._failed = must_abort(KafkaError._INCONSISTENT, reason)
            raise self._failed
        self._end(TransactionState.COMMITTED)
        self.flush(timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
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
