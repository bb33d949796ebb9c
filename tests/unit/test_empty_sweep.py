"""A sweep with nothing to do starts no Spark; Kafka in memory."""

import subprocess

import pytest

from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS
from shardpost.errors import ShardpostError
from shardpost.locks.locks import LockedError, exclusive
from shardpost.spark.job import BY_DEFAULT
from shardpost.spark.submit import submit
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka

NAME = SWEEP_DEAD_LETTERS.name
KAFKA = {"partitions": 1}


def test_without_letters_no_spark_is_started(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*command: object, **_: object) -> None:
        raise AssertionError(f"submitted: {command}")

    monkeypatch.setattr(subprocess, "run", refuse)
    code, result = submit(installed(kafka.settings), SWEEP_DEAD_LETTERS)
    assert code == 0
    assert (result["retried"], result["parked"], result["waiting"]) == (0, 0, 0)


@pytest.mark.parametrize("topic", ["dead-letters", "parking-lot"])
def test_what_the_store_or_its_table_has_to_read_needs_spark(
    kafka: MemoryKafka, topic: str
) -> None:
    installed(kafka.settings).kafka.producer().produce(topic, b"v", b"id", 0)
    assert SWEEP_DEAD_LETTERS.without_spark(installed(kafka.settings), BY_DEFAULT) is None


def test_topics_of_others_need_spark(kafka: MemoryKafka) -> None:
    settings = kafka.settings.model_copy(update={"foreign_dead_letters": "orders.DLT"})
    assert SWEEP_DEAD_LETTERS.without_spark(installed(settings), BY_DEFAULT) is None


def test_beside_another_sweep_it_ends(kafka: MemoryKafka) -> None:
    with exclusive(installed(kafka.settings).files, NAME, NAME), pytest.raises(LockedError):
        submit(installed(kafka.settings), SWEEP_DEAD_LETTERS)


def test_a_store_that_is_no_store_is_refused_without_letters_too(kafka: MemoryKafka) -> None:
    kafka.broker.topics["dead-letters"].config = {"cleanup.policy": "delete"}
    with pytest.raises(ShardpostError, match="dead-letters"):
        submit(installed(kafka.settings), SWEEP_DEAD_LETTERS)
