"""A Kafka in memory for one test, with topics of its own."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.memory.broker import MemoryBroker, milliseconds_now, running
from shardpost.kafka.messages import record_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Record
from shardpost.settings import Settings

_numbers = itertools.count()


@dataclass(frozen=True)
class MemoryKafka:
    """A broker in memory, and settings that lead to it."""

    broker: MemoryBroker
    settings: Settings

    def committed(self, partition: TopicPartition) -> list[Record]:
        """Return the committed records below the last stable offset."""
        found = read_to_end(self.settings, partition, committed=True)
        return [record_of(message) for message in found]


@contextmanager
def memory_kafka(now: Callable[[], int] = milliseconds_now, **given: Any) -> Iterator[MemoryKafka]:
    """Give a Kafka that nobody else uses, without topics."""
    address = f"memory://test-{next(_numbers)}"
    settings = Settings(bootstrap_servers=address, **given)
    with running(address, now) as broker:
        yield MemoryKafka(broker, settings)
