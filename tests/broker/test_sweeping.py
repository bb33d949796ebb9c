"""Sweeps of one store on a real broker: what comes out, in which order, how often."""

import pytest
from confluent_kafka.cimpl import NewTopic

from shardpost import tables
from shardpost.dead_letters.model.letter_format import ATTEMPT, ID
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.installed import installed
from tests.support.kafka_configs import wait_until_shown
from tests.support.letter_world import (
    at,
    committed,
    failed,
    header,
    live,
    open_transaction_behind,
    original,
    put,
    ready_for_letters,
    retries,
    seen,
    sweep,
    total,
)
from tests.support.transactions import begun_transaction


@pytest.fixture
def ready(settings: Settings) -> Settings:
    return ready_for_letters(settings, partitions=2)  # a delay is 60, 120, 240 … seconds


def test_the_store_has_as_many_partitions_as_the_largest_origin(settings: Settings) -> None:
    origin = f"{settings.topic('clients')}-x"
    large = settings.model_copy(update={"retry_origins": f"{origin}: attempts=2"})
    client = installed(large).kafka.admin()  # it has to outlive what it does
    client.create_topics([NewTopic(origin, 6, 1)])[origin].result(30)
    wait_until_shown(large, origin, 6)
    applied = {one.plan.topic: one.plan.partitions for one in apply_topics(installed(large))}
    assert applied[large.topic("dead-letters")] == 6
    assert applied[large.topic("retries")] == 4


def test_a_letter_waits_then_is_retried_whole_and_leaves_the_store(ready: Settings) -> None:
    record = original(7, b"key", b"\xff\x00raw", headers=[("mine", b"\xfe"), ("mine", None)])
    put(ready, [failed(ready, record)])
    assert total(sweep(ready, at(59.999))) == {"waiting": 1}
    assert retries(ready) == []
    assert total(sweep(ready, at(60))) == {"retried": 1}
    [retry] = retries(ready)
    assert (retry.key, retry.value) == (b"key", b"\xff\x00raw")
    assert list(retry.headers) == [
        ("mine", b"\xfe"),
        ("mine", None),
        ("letter-id", b"positions-0-7"),
        ("origin-topic", b"positions"),
        ("origin-partition", b"0"),
        ("origin-offset", b"7"),
        ("attempt", b"1"),
        ("origin-key", b"key"),
    ]
    assert live(ready, ready.topic("dead-letters")) == {}
    assert total(sweep(ready, at(10_000))) == {}
    assert len(retries(ready)) == 1


def test_a_null_value_and_a_null_key_come_back_as_null(ready: Settings) -> None:
    put(ready, [failed(ready, original(1, None, None)), failed(ready, original(2, b"", b""))])
    assert total(sweep(ready, at(60))) == {"retried": 2}
    assert {(retry.key, retry.value) for retry in retries(ready)} == {(None, None), (b"", b"")}


def test_letters_of_a_key_go_in_the_order_of_their_origin_across_batches(ready: Settings) -> None:
    small = ready.model_copy(update={"retry_batch": 2})
    order = [5, 3, 9, 1, 8, 2, 7, 0, 6, 4]
    put(small, [failed(small, original(n, b"one")) for n in order])
    put(small, [failed(small, original(100 + n, b"two")) for n in reversed(range(10))])
    assert total(sweep(small, at(60))) == {"retried": 20}
    found = retries(small)
    by_key = {
        key: [int(header(r, "origin-offset") or -1) for r in found if r.key == key]
        for key in (b"one", b"two")
    }
    assert by_key == {b"one": list(range(10)), b"two": list(range(100, 110))}


def test_an_origin_may_have_a_topic_and_a_backoff_of_its_own(ready: Settings) -> None:
    own = ready.model_copy(
        update={"retry_origins": f"clients: first_delay=5 topic={ready.topic('decisions')}"}
    )
    put(own, [failed(own, original(1, topic="clients")), failed(own, original(2))])
    assert total(sweep(own, at(5))) == {"retried": 1, "waiting": 1}
    assert retries(own) == []
    [retry] = committed(own, own.topic("decisions"))
    assert header(retry, ID) == "clients-0-1"


def test_what_a_dead_sweep_left_in_an_open_transaction_does_not_count(ready: Settings) -> None:
    put(ready, [failed(ready, original(7))])
    [letter] = committed(ready, ready.topic("dead-letters"))
    dead = begun_transaction(ready, f"{letter.topic}/sweep/{letter.partition}")
    dead.produce(
        ready.topic("retries"), b"v", b"k", headers=[(ID, "positions-0-7"), (ATTEMPT, "1")]
    )
    dead.produce(letter.topic, None, letter.key, letter.partition)
    dead.flush(10)
    assert total(sweep(ready, at(60))) == {"retried": 1}
    assert seen(ready) == {("positions-0-7", "1"): 1}


def test_a_strangers_open_transaction_is_waited_for_within_a_bound(ready: Settings) -> None:
    put(ready, [failed(ready, original(7))])
    [letter] = committed(ready, ready.topic("dead-letters"))
    stranger = open_transaction_behind(ready, letter)
    impatient = ready.model_copy(update={"kafka_timeout": 2.0})
    reports = sweep(impatient, at(60))
    [error] = [report.error for report in reports if report.error]
    assert "an open transaction, or the broker is gone" in error
    assert retries(ready) == []
    stranger.abort_transaction(10)
    assert total(sweep(ready, at(60))) == {"retried": 1}


def test_letters_are_their_latest_steps_before_the_first_sweep_too(ready: Settings) -> None:
    assert tables.letters(ready) == []
    records = [failed(ready, original(number)) for number in range(3)]
    put(ready, records)
    found = tables.letters(ready)
    assert sorted(step.id for step in found) == sorted((r.key or b"").decode() for r in records)
    assert {str(step.state) for step in found} == {"waiting"}
    assert [(step.at, step.id) for step in found] == sorted((step.at, step.id) for step in found)
