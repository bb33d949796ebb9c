"""A producer of the broker in memory."""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message

from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.memory.broker import MemoryBroker, broker_at
from shardpost.kafka.memory.errors import refused
from shardpost.kafka.memory.log import PartitionLog, Stored
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.records import BY_KEY, NOW, Headers

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
