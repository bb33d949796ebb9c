"""A partition's one writer: who opens it fences whoever had it before.

Every write is one transaction, which may hold a consumer group's new place as well. After an error
nothing can be written any more; what was not committed counts for nobody.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from shardpost.adapters.kafka import consumer, transactional_producer, unreachable
from shardpost.errors import ShardpostError
from shardpost.settings import Settings

FENCED = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)


class FencedError(ShardpostError):
    """A newer writer has taken the partition over."""


@dataclass(frozen=True)
class Write:
    """One record to be written; without a partition, its key says which."""

    topic: str
    key: bytes
    value: bytes | None
    partition: int | None = None
    headers: dict[str, bytes] = field(default_factory=dict)
    timestamp_ms: int | None = None


class FencedWriter:
    """The writer of that transactional id; `group` is the one whose place it moves on."""

    def __init__(self, settings: Settings, transactional_id: str, group: str) -> None:
        self._settings, self._id = settings, transactional_id
        # A transaction is open for moments; one left by a dead writer holds readers up that long.
        patience = {"transaction.timeout.ms": max(1000, int(settings.kafka_timeout * 1000 / 2))}
        self._producer: Producer = transactional_producer(settings, transactional_id, **patience)
        self._reader = consumer(settings, group)
        self._committed_at = 0.0
        self._broken = False

    def open(self) -> None:
        """Fence all older writers; their open transactions are ended before this returns."""
        with self._said("cannot be opened"):
            self._producer.init_transactions(self._settings.kafka_timeout)
            self._committed_at = time.monotonic()

    def place(self, topic: str, partition: int) -> int | None:
        """Return the offset from which the group reads on; None if it never committed one."""
        with self._said("has no place"):
            asked = [TopicPartition(topic, partition)]
            found = self._reader.committed(asked, timeout=self._settings.kafka_timeout)[0]
            return int(found.offset) if found.offset >= 0 else None

    def commit(self, writes: Sequence[Write], place: TopicPartition | None = None) -> None:
        """Write all in one transaction, with the group's place; FencedError if another took over.

        Without records and without a place, nothing is done.
        """
        if not writes and place is None:
            return
        with self._said("could not be written"):
            self._producer.begin_transaction()
            for write in writes:
                self._produce(write)
            if place is not None:
                self._producer.send_offsets_to_transaction(
                    [place], self._reader.consumer_group_metadata(), self._settings.kafka_timeout
                )
            self._retried(lambda: self._producer.commit_transaction(self._settings.kafka_timeout))
            self._committed_at = time.monotonic()

    def fresh(self, seconds: float) -> bool:
        """Tell whether it was the partition's writer so many seconds ago."""
        return time.monotonic() - self._committed_at < seconds

    def close(self) -> None:
        """Let go of Kafka; a producer that broke can only be left to itself."""
        self._reader.close()
        if not self._broken:
            self._producer.close()

    def _produce(self, write: Write) -> None:
        more: dict[str, Any] = {"headers": write.headers}
        if write.partition is not None:
            more["partition"] = write.partition
        if write.timestamp_ms is not None:
            more["timestamp"] = write.timestamp_ms
        while True:
            try:
                self._producer.produce(write.topic, key=write.key, value=write.value, **more)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _retried(self, call: Callable[[], None]) -> None:
        deadline = time.monotonic() + self._settings.kafka_timeout
        while True:
            try:
                call()
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return

    @contextmanager
    def _said(self, what: str) -> Iterator[None]:
        """Turn an error of Kafka into one of ours."""
        try:
            yield
        except KafkaException as error:
            self._broken = True
            found = error.args[0]
            if found.code() in FENCED:
                raise FencedError(
                    f"fenced: a newer writer has taken over {self._id}; this one stops"
                ) from None
            if found.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                raise unreachable(self._settings, error) from None
            raise ShardpostError(f"{self._id} {what}: {found.str()}; run again") from None
