"""The next record of many partitions, waited for: Kafka says that it came as soon as it has it."""

import time
from collections.abc import Mapping
from contextlib import suppress

import confluent_kafka
from confluent_kafka import KafkaException

from shardpost.errors import ShardpostError
from shardpost.kafka.clients import GroupConsumer
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.kafka import Kafka

# It is to say that a record came, and to read few. After one it would wait a second by default
# until it fetches more (librdkafka 2.16).
_CLIENT = {"fetch.queue.backoff.ms": 10, "fetch.wait.max.ms": 1000, "queued.min.messages": 1}


class AwaitedRecords:
    """A consumer that waits for committed records, and reads nothing meanwhile; to be closed."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._reader: GroupConsumer | None = None
        # The offsets from which on it waits now.
        self._awaited: Mapping[TopicPartition, int] = {}

    def close(self) -> None:
        """Close the consumer."""
        if self._reader:
            self._leave(self._reader)
            with suppress(KafkaException, RuntimeError):
                self._reader.close()

    def wait(self, offsets: Mapping[TopicPartition, int], seconds: float) -> bool:
        """Wait for a record from those offsets on, for so long; tell whether one came.

        That none came says little: Kafka may be away, which is no error here.
        """
        until = time.monotonic() + seconds
        with suppress(ShardpostError, KafkaException):
            reader = self._reading(offsets)
            while (left := until - time.monotonic()) > 0:
                message = reader.poll(left)
                if message is not None and not message.error():
                    self._leave(reader)
                    return True
        time.sleep(max(0.0, until - time.monotonic()))
        return False

    def _reading(self, offsets: Mapping[TopicPartition, int]) -> GroupConsumer:
        if self._reader is None:
            self._reader = self._kafka.consumer("shardpost-reader", **_CLIENT)
        if self._awaited != offsets:
            asked = [confluent_kafka.TopicPartition(*at, first) for at, first in offsets.items()]
            self._reader.assign(asked)
            self._awaited = offsets
        return self._reader

    def _leave(self, reader: GroupConsumer) -> None:
        self._awaited = {}
        with suppress(KafkaException, RuntimeError):
            reader.unassign()
