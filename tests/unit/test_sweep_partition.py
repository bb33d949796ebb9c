"""Sweeping a partition as a whole, on Kafka in memory: retries, a fenced sweep, a dead one."""

from collections.abc import Iterator
from unittest import mock

import pytest

from shardpost.dead_letters import sweep_partition as module
from shardpost.dead_letters.model.outcome import Outcome
from shardpost.kafka import clients
from shardpost.kafka.records import Outgoing
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.letter_world import (
    START,
    at,
    failed,
    live,
    milliseconds,
    original,
    retries,
    seen,
    sweep,
    total,
)
from tests.support.memory_kafka import memory_kafka


@pytest.fixture
def ready() -> Iterator[Settings]:
    with memory_kafka(
        lambda: milliseconds(START), partitions=1, retry_jitter=0.0, retry_attempts=2, retry_batch=2
    ) as kafka:
        apply_topics(kafka.settings)
        yield kafka.settings


def put(settings: Settings, *records: Outgoing) -> None:
    producer = clients.producer(settings)
    for record in records:
        producer.produce(**record._asdict())
    assert producer.flush(1) == 0


def test_a_letter_is_retried_once_an_attempt_and_then_parked(ready: Settings) -> None:
    put(ready, failed(ready, original(0)))
    assert total(sweep(ready, at(59))) == {"waiting": 1}
    for attempt, when in ((1, at(60)), (2, at(300))):
        assert total(sweep(ready, when)) == {"retried": 1}
        assert total(sweep(ready, when)) == {}
        put(ready, failed(ready, retries(ready)[-1], when=START))
        assert seen(ready).total() == attempt
    assert total(sweep(ready, at(9_999))) == {"parked": 1}
    assert list(live(ready, ready.topic("parking-lot"))) == [b"positions-0-0"]
    assert live(ready, ready.topic("dead-letters")) == {}


def test_a_sweep_that_is_fenced_amid_its_batches_leaves_the_rest_to_the_newer_one(
    ready: Settings,
) -> None:
    put(ready, *(failed(ready, original(n, key=b"%d" % n)) for n in range(5)))
    newer: list[dict[str, int]] = []

    def overtake(name: str) -> None:
        if name == "committed" and not newer:
            newer.append({})
            newer[0] = total(sweep(ready, at(60)))

    with mock.patch.object(module, "step", overtake):
        [older] = sweep(ready, at(60))
    assert older.error is not None
    assert "fenced: a newer sweep has taken over" in older.error
    assert (older.counts[Outcome.RETRY], newer) == (2, [{"retried": 3}])
    assert sorted(seen(ready).values()) == [1] * 5


@pytest.mark.parametrize("step", ["fence", "read", "publish", "committed"])
def test_a_sweep_that_dies_is_finished_by_the_next(ready: Settings, step: str) -> None:
    put(ready, *(failed(ready, original(n, key=b"%d" % n)) for n in range(5)))

    def die(name: str) -> None:
        if name == step:
            raise KeyboardInterrupt

    with mock.patch.object(module, "step", die), pytest.raises(KeyboardInterrupt):
        sweep(ready, at(60))
    assert total(sweep(ready, at(60)))["retried"] == (3 if step == "committed" else 5)
    assert sorted(seen(ready).values()) == [1] * 5
    assert live(ready, ready.topic("dead-letters")) == {}
