"""The state of a letter by its steps, and letters that are too large for their store."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from confluent_kafka import Message

from shardpost.dead_letters.model.letter_format import Letter, LetterState, Malformed, parse_record
from shardpost.dead_letters.model.letter_history import Step, in_order, newest_steps, step_of
from shardpost.kafka.records import Header, Outgoing, Record, batch_bytes
from shardpost.letters import MAX_BYTES, PRODUCER_SETTINGS, make_letter
from shardpost.topics.declared import DEAD_LETTERS, PARKING_LOT, RETRIES

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
W, T, P, R, D = (
    LetterState.WAITING,
    LetterState.RETRIED,
    LetterState.PARKED,
    LetterState.REDRIVEN,
    LetterState.DISCARDED,
)
STORE, LOT = "dead-letters", "parking-lot"

# (state, attempt, topic, offset); no attempt: a tombstone that was written by hand.
StepFields = tuple[LetterState, int | None, str, int]


def steps(*found: StepFields) -> list[Step]:
    return [
        Step("x", state, attempt, AT + timedelta(seconds=n), topic, 0, offset)
        for n, (state, attempt, topic, offset) in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([(W, 0, STORE, 0), (T, 0, STORE, 1), (W, 1, STORE, 2)], W),
        ([(W, 0, STORE, 0), (P, 0, LOT, 0), (R, 0, LOT, 1)], R),
        ([(W, 0, STORE, 0), (T, 0, STORE, 1), (W, 0, STORE, 2)], T),  # reported again
        ([(P, 0, LOT, 0), (D, 0, LOT, 1), (W, 0, STORE, 9), (P, 0, LOT, 2)], P),
        ([(W, 2, STORE, 5), (D, None, STORE, 6)], D),
        ([(D, None, STORE, 4), (W, 2, STORE, 5)], W),
        ([(P, 2, LOT, 5), (D, None, STORE, 6)], P),  # it is of the store
        ([(T, 2, STORE, 5), (D, None, STORE, 6)], T),
        ([(D, None, STORE, 4)], None),
    ],
)
def test_a_letter_is_in_the_state_of_its_newest_step(
    fields: list[StepFields], expected: LetterState | None
) -> None:
    for some in permutations(steps(*fields)):
        last = newest_steps(some, {}).get("x")
        assert (last and last.state) == expected


def test_a_letter_has_the_error_of_its_newest_failure() -> None:
    life = steps((W, 0, STORE, 0), (T, 0, STORE, 1), (W, 1, STORE, 2), (T, 1, STORE, 3))
    told = [replace(one, error=f"E: {one.attempt}" if one.state is W else None) for one in life]
    assert {newest_steps(some, {})["x"].error for some in permutations(told)} == {"E: 1"}


def test_a_life_is_in_order_with_what_was_done_by_hand_at_its_time() -> None:
    life = steps((W, 0, STORE, 0), (D, None, STORE, 1), (W, 0, STORE, 2), (P, 0, LOT, 0))
    for some in permutations(life):
        assert in_order(some) == life


PLACE = "dead-letters-1-7@1795262400123"
TEN = ("attempt", b"10")


@pytest.mark.parametrize(
    ("key", "value", "headers", "expected"),
    [
        (b"7", b"v", [], (PLACE, "waiting", 0, None, "7")),
        (b"\xff", b"", [("error", b"E: x")], (PLACE, "waiting", 0, "E: x", "base64 /w==")),
        (b"7", b"v", [("error", b"a"), ("error", b"B"), TEN], (PLACE, "waiting", 10, "B", "7")),
        (b"7", b"v", [("error", b"\xff"), ("attempt", b"7\n")], (PLACE, "waiting", 0, None, "7")),
        (b"7", b"v", [("attempt", b"10000")], (PLACE, "waiting", 0, None, "7")),
        (b"7", None, [], ("7", "discarded", None, None, None)),
        (b"7", None, [("state", b"gone"), TEN], ("7", "discarded", None, None, None)),
        (b"7", None, [("state", b"retried"), TEN], ("7", "retried", 10, None, None)),
        (
            b"7",
            None,
            [("state", b"retried"), ("letter-name", b"7~1")],
            ("7~1", "retried", 0, None, "7"),
        ),
        (
            b"7",
            None,
            [("state", b"retried"), ("letter-name", b"")],
            ("7", "retried", 0, None, None),
        ),
        (b"7", None, [("state", b"parked")], None),  # the parking lot has that step
        (b"7", None, [("state", b"dropped")], None),
    ],
)
def test_a_step_is_what_its_record_says_whatever_that_is(
    key: bytes, value: bytes | None, headers: list[Header], expected: tuple[object, ...] | None
) -> None:
    record = Record(key, value, headers, 1_795_262_400_123, STORE, 1, 7)
    step = step_of(record, store_partitions=2)
    facts = step and (step.id, str(step.state), step.attempt, step.error, step.key)
    assert facts == expected


NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def letter(value: bytes, key: bytes = b"k", **more: Any) -> Outgoing:
    """Return the letter of a message with a header of its own, twice."""
    own: list[Header] = [("a", b"1"), ("a", b"2")]
    message = Message("orders", 3, 41, key, value, headers=own, timestamp=(1, NOW_MS))
    return Outgoing(**make_letter(message, KeyError("x"), partitions=4, failed_at=NOW, **more))


def read(out: Outgoing) -> Letter | Malformed:
    return parse_record(Record(out.key, out.value, out.headers, NOW_MS, "dead-letters", 0, 0))


def test_a_letter_has_its_value_up_to_the_bytes_that_its_store_accepts() -> None:
    size = batch_bytes(letter(b"v" * 1_000))
    whole = letter(b"v" * 1_000, max_bytes=size)
    assert whole.value == b"v" * 1_000
    assert isinstance(read(whole), Letter)
    without = letter(b"v" * 1_000, max_bytes=size - 1)
    assert without.value == b""
    assert (without.key, without.partition) == (whole.key, whole.partition)
    found = read(without)
    assert isinstance(found, Malformed)
    assert found.reason == (
        f"its value was left out: expected a letter of at most {size - 1} bytes, found {size};"
        " KeyError: 'x'"
    )
    kept = [header for header in without.headers if header[0] in ("a", "origin-offset")]
    assert kept == [("a", b"1"), ("a", b"2"), ("origin-offset", b"41")]


@pytest.mark.parametrize("length", [100_000, 3_000_000])
def test_a_key_that_is_too_large_with_it_is_left_out_too(length: int) -> None:
    found = letter(b"v", b"k" * length, max_bytes=50_000)
    assert batch_bytes(found) < 50_000
    assert dict(found.headers)["origin-topic"] == b"orders"
    assert isinstance(read(found), Malformed)


def test_the_declared_topics_take_what_letters_and_producers_are_bounded_by() -> None:
    largest = [int(spec.config["max.message.bytes"]) for spec in (DEAD_LETTERS, RETRIES)]
    assert largest == [MAX_BYTES, PRODUCER_SETTINGS["message.max.bytes"]]
    assert PARKING_LOT.config["max.message.bytes"] == RETRIES.config["max.message.bytes"]
    assert letter(b"v" * (1 << 20)).value
