"""Sweeps of one store on a real broker: what comes out, in which order, how often."""

from datetime import timedelta

import pytest
from confluent_kafka.cimpl import NewTopic

from shardpost.dead_letters.model.letter_format import ATTEMPT, ERROR, FAILED_AT, ID
from shardpost.dead_letters.model.letters import letter_id
from shardpost.kafka.clients import admin, transactional_producer
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.records import Outgoing
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.letter_world import (
    START,
    apply_topics_with_given_times,
    at,
    committed,
    failed,
    header,
    live,
    milliseconds,
    open_transaction_behind,
    original,
    put,
    retries,
    seen,
    sweep,
    total,
)

# No jitter: a delay is 60, 120, 240 … seconds.
PLAIN = {"retry_jitter": 0.0, "kafka_timeout": 10.0}


@pytest.fixture
def ready(settings: Settings) -> Settings:
    made = settings.model_copy(update={**PLAIN, "partitions": 2})
    apply_topics_with_given_times(made, letters_only=True)
    return made


def test_a_tombstone_that_comes_alone_is_read(ready: Settings) -> None:
    for value in (b"v", None):
        put(ready, [Outgoing(ready.topic("dead-letters"), b"k", value, [], 0)])
        found = [record.value for record in committed(ready, ready.topic("dead-letters"))]
    assert found == [b"v", None]


def test_the_store_has_as_many_partitions_as_the_largest_origin(settings: Settings) -> None:
    origin = f"{settings.topic('clients')}-x"
    large = settings.model_copy(update={"retry_origins": f"{origin}: attempts=2"})
    client = admin(large)  # it has to outlive what it does
    client.create_topics([NewTopic(origin, 6, 1)])[origin].result(30)
    applied = {one.topic: one.partitions for one in apply_topics(large)}
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


def test_a_retry_that_fails_is_the_same_letter_and_waits_longer(ready: Settings) -> None:
    put(ready, [failed(ready, original(7))])
    sweep(ready, at(60))
    [retry] = retries(ready)
    put(ready, [failed(ready, retry, when=at(100))])
    assert total(sweep(ready, at(219))) == {"waiting": 1}
    assert total(sweep(ready, at(220))) == {"retried": 1}
    assert seen(ready) == {("positions-0-7", "1"): 1, ("positions-0-7", "2"): 1}


def test_a_null_value_and_a_null_key_come_back_as_null(ready: Settings) -> None:
    put(ready, [failed(ready, original(1, None, None)), failed(ready, original(2, b"", b""))])
    assert total(sweep(ready, at(60))) == {"retried": 2}
    assert {(retry.key, retry.value) for retry in retries(ready)} == {(None, None), (b"", b"")}


def test_a_failure_that_is_reported_again_after_its_retry_is_dropped(ready: Settings) -> None:
    put(ready, [failed(ready, original(7))] * 2)
    assert total(sweep(ready, at(60))) == {"retried": 1}
    put(ready, [failed(ready, original(7), when=at(70))])
    assert total(sweep(ready, at(71))) == {"dropped": 1}
    assert total(sweep(ready, at(5_000))) == {}
    assert seen(ready) == {("positions-0-7", "1"): 1}
    assert live(ready, ready.topic("dead-letters")) == {}


def test_an_old_report_does_not_replace_a_later_attempt(ready: Settings) -> None:
    put(ready, [failed(ready, original(7))])
    sweep(ready, at(60))
    [retry] = retries(ready)
    put(ready, [failed(ready, retry, when=at(100)), failed(ready, original(7), when=at(110))])
    assert total(sweep(ready, at(120))) == {"waiting": 1}
    [there] = live(ready, ready.topic("dead-letters")).values()
    assert header(there, ATTEMPT) == "1"
    assert header(there, FAILED_AT) == at(100).isoformat()
    assert total(sweep(ready, at(121))) == {"waiting": 1}
    assert total(sweep(ready, at(220))) == {"retried": 1}
    assert seen(ready) == {("positions-0-7", "1"): 1, ("positions-0-7", "2"): 1}


def test_exhausted_and_fatal_letters_are_parked_at_once(ready: Settings) -> None:
    quick = ready.model_copy(update={"retry_attempts": 0, "retry_fatal": "SchemaError"})
    put(quick, [failed(quick, original(1)), failed(quick, original(2), "m.SchemaError: no")])
    assert total(sweep(quick, START)) == {"parked": 2}
    lot = live(quick, quick.topic_parking_lot)
    assert {key: header(record, "parked-reason") for key, record in lot.items()} == {
        b"positions-0-1": "exhausted: attempt 0 of 0 failed",
        b"positions-0-2": "exhausted: attempt 0 of 0 failed",
    }
    generous = quick.model_copy(update={"retry_attempts": 8})
    put(generous, [failed(generous, original(3), "m.SchemaError: no")])
    assert total(sweep(generous, START)) == {"parked": 1}
    parked = live(quick, quick.topic_parking_lot)[b"positions-0-3"]
    assert header(parked, "parked-reason") == "fatal: SchemaError is not retried"
    assert (header(parked, ERROR), parked.value) == ("m.SchemaError: no", b"v")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (ATTEMPT, "-1", "expected attempt to be 0 to 9999, found b'-1'"),
        (ATTEMPT, str(10**30), "expected attempt to be 0 to 9999"),
        (ATTEMPT, b"\xff", "expected attempt to be 0 to 9999"),
        (ATTEMPT, None, "expected attempt to be 0 to 9999, found none"),
        (FAILED_AT, "yesterday", "expected failed-at in ISO 8601, found 'yesterday'"),
        (FAILED_AT, "0001-01-01T00:00:00", "expected failed-at after 2000"),
        ("origin-topic", b"\xff\xfe", "expected origin-topic in UTF-8"),
        ("origin-offset", "1e3", "expected origin-offset to be 0 to"),
        (ID, "another", "expected letter-id to be the record's key, found 'another'"),
    ],
)
def test_a_malformed_letter_is_parked_with_what_is_wrong(
    ready: Settings, name: str, value: str | bytes | None, reason: str
) -> None:
    good = failed(ready, original(7))
    put(ready, [good._replace(headers=[*good.headers, (name, value)])])
    [stored] = committed(ready, ready.topic("dead-letters"))
    assert total(sweep(ready, START)) == {"parked": 1}
    [(key, parked)] = live(ready, ready.topic("parking-lot")).items()
    assert key == letter_id(stored.coordinates, stored.timestamp).encode()
    assert (header(parked, "stored-key"), parked.value) == ("positions-0-7", b"v")
    assert reason in (header(parked, ERROR) or "")
    assert total(sweep(ready, at(10**7))) == {}
    assert retries(ready) == []


def test_records_without_headers_and_with_keys_that_are_no_text_are_parked(
    ready: Settings,
) -> None:
    store = ready.topic("dead-letters")
    put(ready, [Outgoing(store, b"junk", b"1", [], 0), Outgoing(store, b"\xff", b"2", [], 1)])
    assert total(sweep(ready, START)) == {"parked": 2}
    lot = live(ready, ready.topic("parking-lot"))
    assert {dict(record.headers)["stored-key"]: record.value for record in lot.values()} == {
        b"junk": b"1",
        b"\xff": b"2",
    }
    assert live(ready, store) == {}


def test_a_failure_in_the_future_counts_from_its_records_own_time(ready: Settings) -> None:
    letter = failed(ready, original(7), when=at(10**6))
    put(ready, [letter._replace(timestamp=milliseconds(START))])
    assert total(sweep(ready, at(59))) == {"waiting": 1}
    assert total(sweep(ready, at(60))) == {"retried": 1}


def test_a_clock_that_goes_back_an_hour_makes_nothing_early(ready: Settings) -> None:
    put(ready, [failed(ready, original(7), when=at(3600))])
    assert total(sweep(ready, at(0))) == {"waiting": 1}
    assert total(sweep(ready, at(3659))) == {"waiting": 1}
    assert total(sweep(ready, at(3660))) == {"retried": 1}


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


def test_letters_that_are_due_at_the_same_moment_all_go(ready: Settings) -> None:
    put(ready, [failed(ready, original(n, f"k{n}".encode())) for n in range(50)])
    assert total(sweep(ready, at(60))) == {"retried": 50}
    assert set(seen(ready).values()) == {1}


def test_a_value_of_900_kilobytes_goes_through_and_into_the_parking_lot(ready: Settings) -> None:
    value = b"x" * 900_000
    put(ready, [failed(ready, original(n, b"k", value)) for n in range(30)])
    assert total(sweep(ready, at(60))) == {"retried": 30}
    assert {retry.value for retry in retries(ready)} == {value}
    none = ready.model_copy(update={"retry_attempts": 0})
    put(none, [failed(none, original(99, b"k", value))])
    assert total(sweep(none, START)) == {"parked": 1}
    assert live(none, none.topic_parking_lot)[b"positions-0-99"].value == value


def test_an_origin_may_have_a_topic_and_a_backoff_of_its_own(ready: Settings) -> None:
    own = ready.model_copy(
        update={"retry_origins": f"clients: first_delay=5 topic={ready.topic('decisions')}"}
    )
    put(own, [failed(own, original(1, topic="clients")), failed(own, original(2))])
    assert total(sweep(own, at(5))) == {"retried": 1, "waiting": 1}
    assert retries(own) == []
    [retry] = committed(own, own.topic("decisions"))
    assert header(retry, ID) == "clients-0-1"


def test_a_flood_of_one_error_is_held_and_the_others_go(ready: Settings) -> None:
    guarded = ready.model_copy(update={"retry_flood": 3})
    flood = [failed(guarded, original(n), f"KeyError: '{n}'") for n in range(5)]
    put(guarded, [*flood, failed(guarded, original(9), "OSError: gone")])
    mark = "KeyError-"
    held = frozenset(found for found in _due_errors(guarded) if found.startswith(mark))
    assert total(sweep(guarded, at(60), held=held)) == {"held": 5, "retried": 1}
    assert total(sweep(guarded, at(60))) == {"retried": 5}


def _due_errors(settings: Settings) -> dict[str, int]:
    from shardpost.dead_letters.model.transition_records import Routes
    from shardpost.dead_letters.sweep_partition import Sweep, due_by_fingerprint
    from tests.support.letter_world import partitions

    counts = partitions(settings)
    routes = Routes(settings.topic("dead-letters"), settings.topic("parking-lot"), counts)
    job = Sweep(settings, routes, at(60))
    found: dict[str, int] = {}
    for number in range(counts[routes.store]):
        for name, count in due_by_fingerprint(job, TopicPartition(routes.store, number)).items():
            found[name] = found.get(name, 0) + count
    return found


def test_what_a_dead_sweep_left_in_an_open_transaction_does_not_count(ready: Settings) -> None:
    put(ready, [failed(ready, original(7))])
    [letter] = committed(ready, ready.topic("dead-letters"))
    dead = transactional_producer(ready, f"{letter.topic}/sweep/{letter.partition}")
    dead.init_transactions(10)
    dead.begin_transaction()
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


def test_jitter_makes_a_letter_later_by_its_part_at_most_and_always_the_same(
    ready: Settings,
) -> None:
    spread = ready.model_copy(update={"retry_jitter": 0.5})
    put(spread, [failed(spread, original(n, f"k{n}".encode())) for n in range(100)])
    assert total(sweep(spread, at(60) - timedelta(milliseconds=1))) == {"waiting": 100}
    half = total(sweep(spread, at(75)))
    assert 25 < half["retried"] < 75
    assert total(sweep(spread, at(75))) == {"waiting": half["waiting"]}
    assert total(sweep(spread, at(90))) == {"retried": half["waiting"]}
