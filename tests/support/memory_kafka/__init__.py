"""Kafka in memory, for tests: a broker in this process, and clients as confluent-kafka's.

`memory_kafka()` gives one that nobody else uses, without topics. An installation with
`bootstrap_servers` of its address, `MEMORY://…`, has a `KafkaInMemory`. They have that
part of the interface that Shardpost uses, and raise what librdkafka raises. The same tests hold for
it and for a real broker (`tests/support/kafka_contract`).
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from shardpost.kafka.clients import ClientFactories
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.reading import read_to_end, record_of
from shardpost.kafka.records import Record, TopicPartition
from shardpost.settings import Settings
from tests.support.installed import installed
from tests.support.memory_kafka.admin import MemoryAdmin
from tests.support.memory_kafka.broker import RUNNING, SCHEME, MemoryBroker, milliseconds_now
from tests.support.memory_kafka.consumer import MemoryConsumer
from tests.support.memory_kafka.producer import MemoryProducer, MemoryTransactionalProducer

_numbers = itertools.count()


class KafkaInMemory(Kafka):
    """A Kafka whose brokers run in this process: nothing is connected to."""

    is_in_process = True
    factories = ClientFactories(
        cast(Any, MemoryAdmin),
        cast(Any, MemoryConsumer),
        cast(Any, MemoryProducer),
        cast(Any, MemoryTransactionalProducer),
    )

    def why_nobody_listens(self, seconds: float = 0) -> str | None:
        return None

    def why_not_admitted(self) -> str | None:
        return None


def _new(kind: type[Kafka], bootstrap: str, *_: object) -> Kafka:
    """Make the Kafka that settings with an address in memory lead to."""
    return object.__new__(KafkaInMemory if bootstrap.startswith(SCHEME) else kind)


Kafka.__new__ = _new  # type: ignore[method-assign,assignment]


@dataclass(frozen=True)
class MemoryKafka:
    """A broker in memory, and settings that lead to it."""

    broker: MemoryBroker
    settings: Settings

    def committed(self, partition: TopicPartition) -> list[Record]:
        """Return the committed records below the last stable offset."""
        found = read_to_end(installed(self.settings).kafka, partition, committed=True)
        return [record_of(message) for message in found]


@contextmanager
def memory_kafka(now: Callable[[], int] = milliseconds_now, **given: Any) -> Iterator[MemoryKafka]:
    """Give a Kafka that nobody else uses, without topics; a home that goes with it by default."""
    address = f"{SCHEME}://test-{next(_numbers)}:9092"
    with TemporaryDirectory() as home:
        settings = Settings(**{"bootstrap_servers": address, "home": Path(home), **given})
        RUNNING[address] = MemoryBroker(now)
        yield MemoryKafka(RUNNING[address], settings)
    del RUNNING[address]
