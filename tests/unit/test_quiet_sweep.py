"""A sweep of letters that all wait reads none of them, until one is due; Kafka in memory."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from shardpost import projection
from shardpost.dead_letters import letters_table
from shardpost.dead_letters.stored_letters import read_on
from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS, SweepRequest
from shardpost.kafka.records import TopicPartition, partition_of
from shardpost.settings import Settings
from shardpost.spark.job import JobResult, document_of
from shardpost.topics.creation import apply_topics
from tests.support.installed import installed
from tests.support.letter_world import (
    START,
    append,
    at,
    failed,
    milliseconds,
    original,
    produce,
    sweep,
    total,
)
from tests.support.memory_kafka import memory_kafka
from tests.support.transactions import begun_transaction

DELAY = 100
Change = Callable[[Settings], None]


@contextmanager
def waiting(delay: int) -> Iterator[Settings]:
    """Give settings of two letters, due after so many seconds, that were swept after ten."""
    given = {"partitions": 2, "retry_jitter": 0.0, "retry_first_delay": delay}
    with memory_kafka(lambda: milliseconds(START), **given) as kafka:
        apply_topics(installed(kafka.settings))
        for number in range(2):
            produce(kafka.settings, failed(kafka.settings, original(number, b"%d" % number)))
        assert total(sweep(kafka.settings, at(10))) == {"waiting": 2}
        append(kafka.settings)
        yield kafka.settings


@pytest.fixture
def ready() -> Iterator[Settings]:
    with waiting(DELAY) as settings:
        yield settings


def quiet(settings: Settings, seconds: float) -> JobResult | None:
    """Return the result of a sweep at that time that needs no Spark; None if it needs it."""
    return SWEEP_DEAD_LETTERS.without_spark(
        installed(settings), document_of(SweepRequest(at(seconds)))
    )


def test_until_a_letter_is_due_nothing_is_read(ready: Settings) -> None:
    found = quiet(ready, DELAY - 0.001)
    assert found is not None
    assert (found[0], found[1]["waiting"], found[1]["retried"]) == (0, 2, 0)
    assert quiet(ready, DELAY) is None
    assert total(sweep(ready, at(DELAY))) == {"retried": 2}


def a_letter(settings: Settings) -> None:
    produce(settings, failed(settings, original(2)))
    append(settings)


def a_tombstone(settings: Settings) -> None:
    client = installed(settings).kafka.producer()
    client.produce(settings.topic("dead-letters"), None, b"positions-0-1", partition_of(b"1", 2))
    client.flush()
    append(settings)


def a_transaction(settings: Settings) -> None:
    begun_transaction(settings, "stranger").produce(settings.topic("dead-letters"), b"v", b"k", 0)


@pytest.mark.parametrize(
    ("change", "waiting"), [(a_letter, 3), (a_tombstone, 1), (a_transaction, None)]
)
def test_what_is_new_is_read(ready: Settings, change: Change, waiting: int | None) -> None:
    assert quiet(ready, 20)
    change(ready)
    found = quiet(ready, 20)
    assert (found[1]["waiting"] if found else None) == waiting


def test_other_rules_count_from_then_on(ready: Settings) -> None:
    assert quiet(ready, 20)
    changed = ready.model_copy(update={"retry_first_delay": 15})
    assert quiet(changed, 14)
    assert quiet(changed, 20) is None


def test_much_that_is_new_is_for_the_tasks_of_a_sweep(
    ready: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters_table, "FEW_OFFSETS", 0)
    assert quiet(ready, 20)
    a_letter(ready)
    assert quiet(ready, 20) is None
    own, store = installed(ready), ready.topic("dead-letters")
    read_on(own, [TopicPartition(store, number) for number in range(2)])
    assert quiet(ready, 20)


def test_without_its_files_it_is_read_anew(ready: Settings) -> None:
    for name in (ready.home / projection.FOLDER).glob("*/letters-*.sqlite"):
        name.write_text("{")
    assert quiet(ready, 20)
    shutil.rmtree(ready.home / projection.FOLDER)
    assert quiet(ready, 20)
