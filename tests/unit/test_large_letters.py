"""Letters that are too large for their store: without their value, and never retried."""

from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Message

from shardpost.dead_letters.model.letter_format import Letter, Malformed, parse
from shardpost.kafka.records import Header, Outgoing, batch_bytes
from shardpost.letters import MAX_BYTES, PRODUCER_SETTINGS, make_letter
from shardpost.topics.declared import DEAD_LETTERS, PARKING_LOT, RETRIES

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def letter(value: bytes, key: bytes = b"k", **more: Any) -> Outgoing:
    """Return the letter of a message with a header of its own, twice."""
    own: list[Header] = [("a", b"1"), ("a", b"2")]
    message = Message("orders", 3, 41, key, value, headers=own, timestamp=(1, NOW_MS))
    return Outgoing(**make_letter(message, KeyError("x"), partitions=4, failed_at=NOW, **more))


def read(out: Outgoing) -> Letter | Malformed:
    return parse(out.key, out.headers, NOW_MS)


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
        f"its value is left out: expected a letter of at most {size - 1} bytes, found {size};"
        " KeyError: 'x'"
    )
    kept = [header for header in without.headers if header[0] in ("a", "origin-offset")]
    assert kept == [("a", b"1"), ("a", b"2"), ("origin-offset", "41")]


@pytest.mark.parametrize("length", [100_000, 3_000_000])
def test_a_key_that_is_too_large_with_it_is_left_out_too(length: int) -> None:
    found = letter(b"v", b"k" * length, max_bytes=50_000)
    assert batch_bytes(found) < 50_000
    assert dict(found.headers)["origin-topic"] == "orders"
    assert isinstance(read(found), Malformed)


def test_the_declared_topics_take_what_letters_and_producers_are_bounded_by() -> None:
    largest = [int(spec.config["max.message.bytes"]) for spec in (DEAD_LETTERS, RETRIES)]
    assert largest == [MAX_BYTES, PRODUCER_SETTINGS["message.max.bytes"]]
    assert PARKING_LOT.config["max.message.bytes"] == RETRIES.config["max.message.bytes"]
    assert letter(b"v" * (1 << 20)).value
