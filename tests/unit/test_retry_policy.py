"""When letters are retried, and which are parked instead."""

from contextlib import closing
from datetime import UTC, datetime, timedelta

from shardpost.dead_letters import stored_letters
from shardpost.dead_letters.model.letter_format import Malformed
from shardpost.dead_letters.model.letters import as_record, first_failure
from shardpost.dead_letters.model.retry_policy import (
    Outcome,
    decide,
    delay,
    error_class,
    fingerprint,
    jitter_of,
    park,
)
from shardpost.dead_letters.stored_letters import LettersNow
from shardpost.kafka.records import Record
from shardpost.values.retry_settings import RetryRules, RetrySettings
from tests.support.letter_world import empty_letters

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
RECORD = Record(b"k", b"v", [("mine", b"1")], NOW_MS, "positions", 3, 41)


def test_delays_grow_to_the_cap_and_jitter_only_lengthens_them() -> None:
    plain = RetrySettings(first_delay=60, factor=2, cap=200, jitter=0)
    assert [delay(plain, attempt, jitter_of("x", attempt)) for attempt in (0, 1, 2, 9999)] == [
        60,
        120,
        200,
        200,
    ]
    spread = RetrySettings(jitter=0.5)
    delays = [delay(spread, 0, jitter_of(f"x-{n}", 0)) for n in range(200)]
    assert 60 <= min(delays) < 65
    assert 85 < max(delays) <= 90
    assert delays == [delay(spread, 0, jitter_of(f"x-{n}", 0)) for n in range(200)]


def test_what_no_retry_can_help_is_parked() -> None:
    letter = first_failure(RECORD, "pkg.SchemaError: no", NOW)
    for names in ({"SchemaError"}, {"pkg.SchemaError"}):
        decided = decide(letter, RetryRules(fatal=frozenset(names)))
        assert decided == park("fatal: SchemaError is not retried")
    assert decide(letter, RetryRules(fatal=frozenset({"Schema"}))).due
    exhausted = decide(letter._replace(attempt=8), RetryRules())
    assert exhausted == park("exhausted: attempt 8 of 8 failed")
    assert decide(letter._replace(attempt=7), RetryRules()).due
    assert decide(Malformed("no id"), RetryRules()) == park("malformed: no id")


def test_errors_that_differ_in_values_have_one_fingerprint() -> None:
    same = [
        'a.b.DecodeError: expected a number, found "1,5" at 7\nTraceback …',
        "a.b.DecodeError: expected a number, found 'x' at 0xff",
    ]
    assert len({fingerprint(error) for error in same}) == 1
    assert fingerprint(same[0]).startswith("DecodeError-")
    bare = [f"Undecodable: expected one JSON object, found bad{x}" for x in "GH"]
    assert fingerprint(bare[0]) == fingerprint(bare[1])
    assert fingerprint("DecodeError: expected text") != fingerprint(same[0])
    assert error_class("it broke: badly") == "error"


def test_a_letter_of_a_retry_topic_is_never_retried_but_parked_with_the_reason() -> None:
    rules = RetryRules(of_origin={"bonds": RetrySettings(topic="bonds-retries")})
    for topic in ("retries", "bonds-retries"):
        letter = first_failure(RECORD._replace(topic=topic), "E: x", NOW)
        assert (decide(letter, rules).reason or "").endswith(f"found the retry topic {topic}")
    letter = first_failure(RECORD._replace(topic="bonds"), "E: x", NOW)
    assert decide(letter, rules).due


def test_a_letter_is_retried_when_it_is_due_and_not_before() -> None:
    rules = RetryRules(RetrySettings(jitter=0))
    made = as_record(first_failure(RECORD, "E: x", NOW), RECORD, "dead-letters", 8)
    stored = Record(made.key, made.value, made.arguments()["headers"], NOW_MS, "dead-letters", 0, 7)
    with closing(empty_letters()) as letters:
        stored_letters.fold(rules, letters, [stored])
        for late, outcome in ((59_999_999, Outcome.WAIT), (60_000_000, Outcome.RETRY)):
            now = LettersNow(letters, NOW + timedelta(microseconds=late))
            assert now.counts() == {outcome: 1}
