"""The contract of Kafka, held against Kafka in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardpost.kafka.records import TopicPartition
from tests.support.kafka_contract import KafkaContract
from tests.support.kafka_contract.cluster import Cluster
from tests.support.memory_kafka import memory_kafka


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with memory_kafka(home=tmp_path, kafka_timeout=30) as kafka:

        def compact(partition: TopicPartition) -> None:
            made.put(partition, (b"filler", b""))  # the last record is never taken away
            kafka.broker.log(partition).compact()

        def delete_before(partition: TopicPartition, offset: int) -> None:
            kafka.broker.log(partition).delete_before(offset)

        made = Cluster(kafka.settings, compact, delete_before)
        yield made


@pytest.fixture
def nowhere() -> str:
    return "MEMORY://nowhere:9092"


class TestMemoryKafka(KafkaContract):
    """All that holds for a real broker."""
