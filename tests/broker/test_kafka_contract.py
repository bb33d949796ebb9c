"""The contract of Kafka, held against a real broker."""

from collections.abc import Iterator

import pytest

from shardpost.embedded import daemons
from shardpost.kafka.records import TopicPartition
from shardpost.settings import Settings
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.kafka_configs import SOON_CLEANED, busy_cleaner, configure_topic
from tests.support.kafka_contract import KafkaContract
from tests.support.kafka_contract.cluster import Cluster, of


@pytest.fixture(scope="module", autouse=True)
def _cleaner_that_seldom_rests(kafka: Settings) -> Iterator[None]:
    with busy_cleaner(kafka):
        yield


@pytest.fixture
def cluster(settings: Settings) -> Cluster:
    def compact(partition: TopicPartition) -> None:
        configure_topic(settings, partition.topic, SOON_CLEANED)

        def is_clean() -> bool:
            made.put(partition, (b"filler", b""))  # the segment that is written to is not cleaned
            found = [pair for pair in made.read(partition) if pair[0] != b"filler"]
            return len(found) == len(dict(found))

        wait_for(is_clean, "the cleaner", seconds=120)

    def delete_before(partition: TopicPartition, offset: int) -> None:
        client = installed(settings).kafka.admin()
        for done in client.delete_records([of(partition, offset)]).values():
            done.result(20)

    made = Cluster(settings, compact, delete_before)
    return made


@pytest.fixture
def nowhere() -> str:
    return f"127.0.0.1:{daemons.choose_port()}"


class TestKafka(KafkaContract):
    """All of it holds for a real broker."""
