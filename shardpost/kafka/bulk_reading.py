"""Reading ranges of many partitions at once, some records of each: by one consumer."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from shardpost.kafka.clients import consumer, unreachable
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offset_ranges import OffsetRange
from shardpost.kafka.offsets import TRANSIENT_LEADER_ERRORS
from shardpost.settings import Settings

BATCH = 10_000
POLL_SECONDS = 0.05
CLIENT = {
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",  # what is asked for may be deleted meanwhile
    "fetch.queue.backoff.ms": 10,
    "fetch.wait.max.ms": 20,
    # Few records of each are wanted, and all partitions wait in memory at the same time.
    "max.partition.fetch.bytes": 128 << 10,
    "queued.max.messages.kbytes": 16 << 10,
}


class BulkReading:
    """One pass over ranges; `reached` is the offset up to which each was read so far.

    A range ends after `most` records as well. What is not read when the time is over stays so.
    """

    def __init__(
        self,
        settings: Settings,
        ranges: Mapping[TopicPartition, OffsetRange],
        *,
        committed: bool,
        most: int,
    ) -> None:
        self.reached = {partition: range_.first for partition, range_ in ranges.items()}
        self._settings, self._ranges, self._most = settings, ranges, most
        self._isolation = "read_committed" if committed else "read_uncommitted"
        self._counts = dict.fromkeys(ranges, 0)
        self._open = set(ranges)

    def messages(self, until: float) -> Iterator[Message]:
        """Yield records, of each partition in their order, until a time of the monotonic clock."""
        if not self._open:
            return
        more = CLIENT | {"isolation.level": self._isolation}
        reader = consumer(self._settings, "shardpost-reader", **more)
        try:
            reader.incremental_assign([_at(range_) for range_ in self._ranges.values()])
            while self._open and time.monotonic() < until:
                ended: set[TopicPartition] = set()
                for message in reader.consume(BATCH, POLL_SECONDS):
                    # A plain tuple is equal to a TopicPartition, and sooner made.
                    partition: Any = (message.topic(), message.partition())
                    if partition in self._open and partition not in ended:
                        if self._is_record(partition, message):
                            yield message
                        if self._is_over(partition):
                            ended.add(partition)
                self._leave(reader, ended)
        finally:
            reader.close()

    def _is_record(self, partition: TopicPartition, message: Message) -> bool:
        """Tell whether it is a record of its range; note how far that was read."""
        until, offset = self._ranges[partition].until, message.offset() or 0
        if error := message.error():
            self._require_harmless(error)
            if error.code() == KafkaError._PARTITION_EOF:
                self.reached[partition] = max(self.reached[partition], min(offset, until))
            return False
        self.reached[partition] = min(offset + 1, until)
        self._counts[partition] += 1
        return offset < until

    def _require_harmless(self, error: KafkaError) -> None:
        passes = (KafkaError._PARTITION_EOF, *TRANSIENT_LEADER_ERRORS)
        if error.code() not in passes:
            raise unreachable(self._settings, KafkaException(error))

    def _is_over(self, partition: TopicPartition) -> bool:
        is_read = self.reached[partition] >= self._ranges[partition].until
        return is_read or self._counts[partition] >= self._most

    def _leave(self, reader: Consumer, ended: set[TopicPartition]) -> None:
        if ended:
            self._open -= ended
            reader.incremental_unassign([confluent_kafka.TopicPartition(*one) for one in ended])


def _at(range_: OffsetRange) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(range_.topic, range_.partition, range_.first)
