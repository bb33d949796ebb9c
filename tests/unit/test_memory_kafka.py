"""The contract of Kafka, held against Kafka in memory."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardpost.kafka.coordinates import TopicPartition
from shardpost.settings import Settings
from tests.support.kafka_contract.cluster import Cluster
from tests.support.kafka_contract.reading import ReadingContract, WatermarksContract
from tests.support.kafka_contract.topics import TopicsContract
from tests.support.kafka_contract.transactions import (
    GroupsContract,
    PlacementContract,
    TransactionsContract,
)
from tests.support.memory_kafka.broker import running

_numbers = itertools.count()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    address = f"MEMORY://test-of-contract-{next(_numbers)}:9092"
    settings = Settings(home=tmp_path, bootstrap_servers=address, kafka_timeout=30)
    with running(address) as broker:

        def compact(partition: TopicPartition) -> None:
            made.put(partition, (b"filler", b""))  # the last record is never taken away
            broker.log(partition).compact()

        def delete_before(partition: TopicPartition, offset: int) -> None:
            broker.log(partition).delete_before(offset)

        made = Cluster(settings, compact, delete_before)
        yield made


@pytest.fixture
def nowhere() -> str:
    return "MEMORY://nowhere:9092"


class TestMemoryKafka(
    ReadingContract,
    WatermarksContract,
    GroupsContract,
    TransactionsContract,
    PlacementContract,
    TopicsContract,
):
    """All that holds for a real broker."""
