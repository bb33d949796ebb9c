"""Sweeping a partition as a whole, on Kafka in memory: retries, a fenced sweep, a dead one."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from unittest import mock

import pytest

from shardpost.dead_letters import sweep_partition as module
from shardpost.dead_letters.model.retry_policy import Outcome, fingerprint
from shardpost.dead_letters.model.sweep_result import ParkedGroup
from shardpost.kafka.records import Outgoing
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.at_step import dying
from tests.support.letter_world import (
    START,
    apply_topics_with_given_times,
    at,
    failed,
    header,
    live,
    milliseconds,
    original,
    produce,
    retries,
    seen,
    sweep,
    total,
)
from tests.support.memory_kafka import memory_kafka
from tests.support.memory_kafka.broker import broker_at


@dataclass
class Clock:
    """The broker's."""

    now: datetime = START


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bare(clock: Clock) -> Iterator[Settings]:
    """Give settings of a Kafka without topics."""
    given = {"partitions": 1, "retry_jitter": 0.0, "retry_attempts": 2, "retry_batch": 2}
    with memory_kafka(lambda: milliseconds(clock.now), **given) as kafka:
        yield kafka.settings


@pytest.fixture
def ready(bare: Settings) -> Settings:
    apply_topics(bare)
    return bare


def test_a_letter_is_retried_once_an_attempt_and_then_parked(ready: Settings) -> None:
    produce(ready, failed(ready, original(0)))
    assert total(sweep(ready, at(59))) == {"waiting": 1}
    for attempt, when in ((1, at(60)), (2, at(300))):
        assert total(sweep(ready, when)) == {"retried": 1}
        assert total(sweep(ready, when)) == {}
        produce(ready, failed(ready, retries(ready)[-1], when=START))
        assert seen(ready).total() == attempt
    assert total(sweep(ready, at(9_999))) == {"parked": 1}
    [(key, parked)] = live(ready, ready.topic("parking-lot")).items()
    assert (key, parked.value) == (b"positions-0-0", b"v")
    assert header(parked, "parked-reason") == "exhausted: attempt 2 of 2 failed"
    assert header(parked, "error") == "ValueError: bad"
    assert live(ready, ready.topic("dead-letters")) == {}


@pytest.mark.parametrize("hours", [-8760, -1, 1, 8760])
def test_a_clock_of_a_consumer_that_is_wrong_makes_no_retry_early_or_late(
    ready: Settings, clock: Clock, hours: int
) -> None:
    wrong = timedelta(hours=hours)
    produce(ready, failed(ready, original(0), when=START + wrong))
    assert total(sweep(ready, at(59.999))) == {"waiting": 1}
    assert total(sweep(ready, at(60))) == {"retried": 1}
    clock.now = at(100)
    produce(ready, failed(ready, retries(ready)[-1], when=at(100) + wrong))
    assert total(sweep(ready, at(219.999))) == {"waiting": 1}
    assert total(sweep(ready, at(220))) == {"retried": 1}


def test_old_reports_on_top_of_a_letter_that_waits_do_not_put_it_off(
    ready: Settings, clock: Clock
) -> None:
    produce(ready, failed(ready, original(0)))
    sweep(ready, at(60))
    clock.now = at(100)
    produce(ready, failed(ready, retries(ready)[-1], when=START))
    for seconds in (120, 150, 180, 219):
        clock.now = at(seconds)
        produce(ready, failed(ready, original(0), when=at(seconds)))
        assert total(sweep(ready, at(seconds))) == {"waiting": 1}
    assert total(sweep(ready, at(220))) == {"retried": 1}


def test_a_sweep_knows_whether_the_broker_stamps_the_letters(bare: Settings) -> None:
    apply_topics_with_given_times(bare)
    produce(bare, failed(bare, original(0), when=at(-3600)))
    [report] = sweep(bare, START)
    assert (report.is_append_time, report.counts[Outcome.RETRY]) == (False, 1)
    bare_store = broker_at(bare.bootstrap).topics[bare.topic("dead-letters")]
    bare_store.config = {**bare_store.config, "message.timestamp.type": "LogAppendTime"}
    produce(bare, failed(bare, original(1), when=at(-3600)))
    [report] = sweep(bare, START)
    assert (report.is_append_time, report.counts[Outcome.WAIT]) == (True, 1)


def test_what_was_parked_is_counted_by_origin_and_error(ready: Settings) -> None:
    strict = ready.model_copy(update={"retry_fatal": "SchemaError,KeyError"})
    topics = ("positions", "positions", "clients")
    produce(
        strict,
        *(failed(strict, original(n, topic=t), f"KeyError: {n}") for n, t in enumerate(topics)),
    )
    produce(strict, failed(strict, original(8), "SchemaError: no"), failed(strict, original(9)))
    produce(strict, Outgoing(strict.topic("dead-letters"), b"junk", b"v", [], 0))
    [report] = sweep(strict, START)
    malformed = fingerprint("malformed: expected a header letter-id, found none")
    assert report.parked == {
        ParkedGroup("positions", fingerprint("KeyError: 1")): 2,
        ParkedGroup("clients", fingerprint("KeyError: 1")): 1,
        ParkedGroup("positions", fingerprint("SchemaError: no")): 1,
        ParkedGroup("", malformed): 1,
    }
    assert report.parked.total() == report.counts[Outcome.PARK] == 5
    assert sweep(strict, START)[0].parked == {}


def test_what_is_parked_for_its_size_is_counted_and_what_is_held_is_not(
    ready: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    broker = broker_at(ready.bootstrap)
    for name, most in (("retries", "2000"), ("parking-lot", "9000")):
        topic = broker.topics[name]
        topic.config = {**topic.config, "max.message.bytes": most}
    values = (b"x" * 5_000, b"x" * 20_000, b"x")
    produce(
        ready, *(failed(ready, original(n, b"%d" % n, value)) for n, value in enumerate(values))
    )
    [report] = sweep(ready, at(60))
    assert total([report]) == {"parked": 1, "held": 1, "retried": 1}
    assert report.parked == {ParkedGroup("positions", fingerprint("ValueError: bad")): 1}
    assert "too large for the parking lot: 20000 bytes" in caplog.text
    assert total(sweep(ready, at(61))) == {"held": 1}


def test_a_sweep_that_is_fenced_amid_its_batches_leaves_the_rest_to_the_newer_one(
    ready: Settings,
) -> None:
    produce(ready, *(failed(ready, original(n, key=b"%d" % n)) for n in range(5)))
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
    produce(ready, *(failed(ready, original(n, key=b"%d" % n)) for n in range(5)))
    with dying(module, step), pytest.raises(KeyboardInterrupt):
        sweep(ready, at(60))
    assert total(sweep(ready, at(60)))["retried"] == (3 if step == "committed" else 5)
    assert sorted(seen(ready).values()) == [1] * 5
    assert live(ready, ready.topic("dead-letters")) == {}
