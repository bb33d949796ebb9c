"""Letters as values: made, read, bounded, retried, and distinguished by their errors."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies

from shardpost.dead_letters.model import letter_format, letters, transition_records
from shardpost.dead_letters.model.foreign_letters import (
    DIALECTS,
    Dialect,
    KnownTopics,
    from_foreign,
)
from shardpost.dead_letters.model.letter_format import Letter, Malformed
from shardpost.dead_letters.model.letters import as_record, failed_again, first_failure
from shardpost.dead_letters.model.retry_policy import (
    decide,
)
from shardpost.dead_letters.model.transition_records import Routes
from shardpost.instants import LATEST_MS, instant_of
from shardpost.kafka.records import (
    NO_TIMESTAMP,
    Coordinates,
    Header,
    Headers,
    Outgoing,
    Record,
    partition_of,
)
from shardpost.values.retry_settings import RetryRules, RetrySettings, parse_origins

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
RECORD = Record(b"k", b"v", [("mine", b"1")], NOW_MS, "positions", 3, 41)
ID = f"positions-3-41@{NOW_MS}"


def stored(record: Record = RECORD, error: BaseException | str = "E: x") -> Outgoing:
    return as_record(first_failure(record, error, NOW), record, "dead-letters", 8)


def parse(
    key: bytes | None, headers: Headers, timestamp: int, *, is_append_time: bool = False
) -> Letter | Malformed:
    record = RECORD._replace(key=key, headers=headers, timestamp=timestamp)
    return letter_format.parse_record(record._replace(is_append_time=is_append_time))


def read(out: Outgoing, timestamp: int = NOW_MS) -> Letter | Malformed:
    return parse(out.key, out.headers, timestamp)


def letter_of(out: Outgoing, timestamp: int = NOW_MS) -> Letter:
    letter = read(out, timestamp)
    assert isinstance(letter, Letter)
    return letter


def reason_of(out: Outgoing) -> str:
    malformed = read(out)
    assert isinstance(malformed, Malformed)
    return malformed.reason


def test_a_letter_is_read_as_it_was_made() -> None:
    out = stored(error=KeyError("Amount"))
    assert (out.key, out.value) == (ID.encode(), b"v")
    assert out.partition == partition_of(b"k", 8)
    assert read(out) == Letter(
        ID, "positions", 3, 41, b"k", 0, "KeyError: 'Amount'", NOW, is_null=False
    )


def test_a_record_at_the_same_place_of_a_recreated_topic_makes_a_letter_of_its_own() -> None:
    again, other = RECORD._replace(headers=[]), RECORD._replace(timestamp=NOW_MS + 1)
    assert [first_failure(one, "E: x", NOW).id for one in (RECORD, again, other)] == [
        *(ID, ID, f"positions-3-41@{NOW_MS + 1}")
    ]
    without = RECORD._replace(timestamp=NO_TIMESTAMP)
    assert first_failure(without, "E: x", NOW).id == "positions-3-41"


def test_without_a_key_it_lies_where_its_id_lies() -> None:
    out = stored(RECORD._replace(key=None, value=None))
    assert out.partition == partition_of(ID, 8)
    assert out.value == b""
    assert (letter_of(out).origin_key, letter_of(out).is_null) == (None, True)


@given(strategies.binary(max_size=50), strategies.text(max_size=3000), strategies.integers(0, 999))
def test_any_key_error_and_attempt_survive_a_retry_that_fails(
    key: bytes, error: str, attempt: int
) -> None:
    letter = first_failure(RECORD._replace(key=key), error, NOW)._replace(attempt=attempt)
    headers = letters.letter_headers(letter, more_attempts=1)
    retry = Record(key, b"v", headers, NOW_MS, "retries", 0, 0)
    again = failed_again(retry, error, NOW)
    assert again == letter._replace(attempt=attempt + 1)


def test_a_record_that_is_no_retry_is_not_taken_for_one() -> None:
    assert failed_again(RECORD, "E: x", NOW) is None


def test_headers_of_a_letter_that_a_record_carries_are_not_trusted() -> None:
    out = stored(RECORD._replace(headers=[("attempt", b"7"), ("letter-id", b"other-0-0")]))
    assert (letter_of(out).id, letter_of(out).attempt) == (ID, 0)


def test_headers_and_the_error_are_bounded_in_size() -> None:
    many = [(f"h{n}", b"x" * 1000) for n in range(100)]
    out = stored(RECORD._replace(headers=many), "Error: " + "ü" * 9000)
    size = sum(len(name) + len(value or "") for name, value in out.headers)
    assert size < 36_000
    assert dict(out.headers)["headers-left-out"] == "68"
    assert len(str(dict(out.headers)["error"]).encode()) <= 2000


def test_a_failure_after_its_own_record_counts_from_the_record() -> None:
    assert letter_of(stored(), NOW_MS - 5000).failed_at == NOW - timedelta(seconds=5)


@given(
    strategies.lists(
        strategies.tuples(
            strategies.sampled_from(sorted(letter_format.RESERVED)) | strategies.text(max_size=5),
            strategies.none() | strategies.binary(max_size=40),
        ),
        max_size=12,
    ),
    strategies.none() | strategies.binary(max_size=20),
    strategies.integers(-(2**63), 2**63 - 1),
)
def test_no_headers_make_reading_fail(
    headers: list[tuple[str, bytes | None]], key: bytes | None, timestamp: int
) -> None:
    assert isinstance(parse(key, headers, timestamp), Letter | Malformed)


ODD = [
    *(b"", b"0", b"7", b"007", b"00007", b" 7", b"7\n", b"1_0", b"+7", b"-1", b"9999", b"10000"),
    *(b"2147483647", b"2147483648", b"0" * 19, b"0" * 20, b"9" * 18, b"9" * 19, b"9" * 5000),
    *("7", "\u0667", b"\xd9\xa7", b"\xff", b"true", "true", ID.encode(), b"other-0-0"),
    *(b"2026-11-21", b"2026-11-21T12:00:00", b"2026-11-21T12:00:00Z", b"2026-W47-6"),
    *(b"2026-11-21T12:00:00+01:00", b"2026-11-21T12:00:00.000001+00:00", b"1999-12-31T00:00:00Z"),
    *(b"k" * 1000, b"k" * 1001, b"e" * 2001, b"\xc3\xbc" * 1001),
    *(b"0001-01-01T00:00:00+23:59", b"9999-12-31T23:59:59.999999Z", "2026-11-21T12:00:00Z"),
]


@given(
    strategies.lists(
        strategies.tuples(
            strategies.sampled_from(sorted(letter_format.RESERVED)),
            strategies.none() | strategies.sampled_from(ODD),
        ),
        max_size=3,
    ),
    strategies.sampled_from(sorted(letter_format.RESERVED)) | strategies.none(),
    strategies.sampled_from(
        [ID.encode(), b"other-0-0", b"", b"\xff", b"k" * 1000, b"k" * 1001, None]
    ),
    strategies.sampled_from([NOW_MS, NOW_MS - 1, NOW_MS + 1, 0, -1, 2**63 - 1]),
)
def test_whatever_a_header_has_what_is_read_is_within_its_bounds(
    spoilt: list[tuple[str, bytes | str | None]],
    left_out: str | None,
    key: bytes | None,
    timestamp: int,
) -> None:
    well_formed = [(name, v.encode() if isinstance(v, str) else v) for name, v in stored().headers]
    headers = [*(header for header in well_formed if header[0] != left_out), *spoilt]
    match parse(key, headers, timestamp):
        case Malformed(reason):
            assert reason
        case letter:
            assert letter.id.encode() == key
            assert letter.origin_topic
            assert len(letter.id.encode()) <= letter_format.MAX_KEY_BYTES
            assert 0 <= letter.attempt <= letter_format.MAX_ATTEMPTS
            assert 0 <= letter.origin_partition <= letter_format.MAX_PARTITION
            assert 0 <= letter.origin_offset <= letter_format.MAX_OFFSET
            assert letter.failed_at <= instant_of(timestamp)


def test_a_letter_is_delayed_from_when_the_broker_took_it_whatever_its_consumer_says() -> None:
    rules = RetryRules(RetrySettings(jitter=0))
    for hours in (-24 * 365, -1, 0, 1, 24 * 365):  # by which the clock of its consumer is wrong
        failed_at = NOW + timedelta(hours=hours)
        out = as_record(first_failure(RECORD, "E: x", failed_at), RECORD, "dead-letters", 8)
        letter = parse(out.key, out.headers, NOW_MS, is_append_time=True)
        assert isinstance(letter, Letter)
        assert letter.delayed_from == NOW
        assert decide(letter, rules).due == NOW + timedelta(seconds=60)


@pytest.mark.parametrize(
    ("stored_at", "seconds"),
    [
        ("1795262390000", -10),
        (str(NOW_MS + 1), 0),
        ("soon", 0),
        ("-1", 0),
        (None, 0),
        ("9" * 30, 0),
    ],
)
def test_a_letter_that_was_written_again_says_when_it_was_first_and_never_later(
    stored_at: str | None, seconds: int
) -> None:
    out = stored()
    headers = [*out.headers, (letter_format.STORED_AT, stored_at)]
    letter = parse(out.key, headers, NOW_MS, is_append_time=True)
    assert isinstance(letter, Letter)
    assert letter.delayed_from == NOW + timedelta(seconds=seconds)
    by_producer = letter_of(out._replace(headers=headers))
    assert by_producer.delayed_from == by_producer.failed_at == NOW


def test_a_letter_that_is_written_again_and_again_keeps_the_time_of_the_first() -> None:
    record = as_read(stored())._replace(timestamp=NOW_MS, is_append_time=True)
    for hours in (1, 2):
        later = NOW_MS + hours * 3_600_000
        record = as_read(transition_records.restored(record))
        record = record._replace(timestamp=later, is_append_time=True)
        letter = letter_format.parse_record(record)
        assert isinstance(letter, Letter)
        assert letter.delayed_from == NOW
    assert [name for name, _ in record.headers].count(letter_format.STORED_AT) == 1


def test_when_it_was_stored_goes_no_further_than_the_store() -> None:
    record = as_read(stored())
    headers = [*record.headers, (letter_format.STORED_AT, b"7")]
    record = record._replace(headers=headers)
    letter = letter_of(stored())
    retry = transition_records.retry_record(letter, record, "retries", ROUTES)
    again = as_record(letter, record, "dead-letters", 8)
    for out in (retry, again):
        assert letter_format.STORED_AT not in dict(out.headers)


def test_a_letter_of_the_last_year_that_there_is_waits() -> None:
    out = stored()
    headers = [*out.headers, (letter_format.FAILED_AT, "9999-12-31T23:59:59Z")]
    letter = parse(out.key, headers, 2**63 - 1)
    assert decide(letter, RetryRules()).due == datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("attempt", "-1", "expected attempt to be 0 to 9999, found b'-1'"),
        ("attempt", str(10**30), "expected attempt to be 0 to 9999"),
        ("attempt", b"\xff", "expected attempt to be 0 to 9999"),
        ("attempt", None, "expected attempt to be 0 to 9999, found none"),
        ("failed-at", "yesterday", "expected failed-at in ISO 8601, found 'yesterday'"),
        ("failed-at", "0001-01-01T00:00:00", "expected failed-at after 2000"),
        ("origin-topic", b"\xff\xfe", "expected origin-topic in UTF-8"),
        ("origin-offset", "1e3", "expected origin-offset to be 0 to"),
        ("letter-id", "another", "expected letter-id to be the record's key, found 'another'"),
    ],
)
def test_a_malformed_letter_says_what_is_wrong(
    name: str, value: str | bytes | None, reason: str
) -> None:
    out = stored()
    assert reason in reason_of(out._replace(headers=[*out.headers, (name, value)]))


def test_values_for_single_origins_are_read() -> None:
    found = parse_origins("a: attempts=3 topic=again; b.c: first_delay=0.5", RetrySettings(cap=7))
    assert found == {
        "a": RetrySettings(cap=7, attempts=3, topic="again"),
        "b.c": RetrySettings(cap=7, first_delay=0.5),
    }


@pytest.mark.parametrize(
    "text",
    [
        *("a", "a: x=1", "a: attempts=-1", "a: attempts=1001", "a: cap=inf", ": cap=1"),
        *("a: factor=0.5", "a: jitter=2", "a: cap=1; a: cap=2"),
    ],
)
def test_values_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_origins(text, RetrySettings())


def test_an_error_that_cannot_say_what_it_is_is_named_by_its_class() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    letter = first_failure(RECORD, MuteError(), NOW)
    assert letter.error.endswith("MuteError: its message is unreadable")


def test_how_often_each_error_parked_a_letter_is_remembered() -> None:
    record, counts = as_read(stored()), []
    for error in "AABA":
        letter = first_failure(RECORD, f"{error}: x", NOW)
        out = transition_records.parked_record(letter, record, "exhausted", LOT_ROUTES)
        record = as_read(out)
        counts.append(transition_records.parked_count(dict(record.headers)))
    assert counts == [1, 2, 1, 3]


def test_a_letter_of_kafka_connect_is_taken_in() -> None:
    headers = [
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"2"),
        ("__connect.errors.offset", b"17"),
        ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
        ("__connect.errors.exception.message", b"bad schema"),
    ]
    foreign = Record(b"k", None, headers, NO_TIMESTAMP, "connect-dlq", 0, 3)
    letter = read(taken_in(foreign))
    assert letter == Letter(
        *("orders-2-17", "orders", 2, 17, b"k", 0),
        "org.apache.kafka.connect.errors.DataException: bad schema",
        NOW,
        is_null=True,
    )


def test_the_id_of_a_foreign_letter_has_the_time_of_the_original_record() -> None:
    at = {"original-timestamp": NOW_MS.to_bytes(8, "big")}
    of_spring = in_sets(SPRING, [spring(b"orders", 17, b"one") | at])
    of_connect = in_sets(CONNECT, [connect(b"orders", 17, b"one")])
    by_spring = Record(b"k", b"v", of_spring, NOW_MS + 7, "dlq", 0, 3)
    by_connect = Record(b"k", b"v", of_connect, NOW_MS, "dlq", 0, 3)  # it keeps the original's
    ours = first_failure(Record(b"k", b"v", [], NOW_MS, "orders", 0, 17), "E: x", NOW)
    for foreign in (by_spring, by_connect):
        assert taken_in(foreign).key == ours.id.encode() == f"orders-0-17@{NOW_MS}".encode()
    stamped = by_connect._replace(is_append_time=True)  # by the broker, with its own time
    assert taken_in(stamped).key == b"orders-0-17"
    chained = [*of_connect, *in_sets(CONNECT, [connect(b"dlq", 99, b"two")])]
    assert taken_in(by_connect._replace(headers=chained)).key == ours.id.encode()
    later = {"original-timestamp": (NOW_MS + 9).to_bytes(8, "big")}
    chained = [*of_spring, *in_sets(SPRING, [spring(b"x.DLT", 99, b"two") | later])]
    assert taken_in(by_spring._replace(headers=chained)).key == ours.id.encode()


@pytest.mark.parametrize("number", [0, 2, 3])
def test_each_framework_says_where_the_record_was_and_why_it_failed(number: int) -> None:
    prefix, of = SETS[number]
    at = {} if prefix == STREAMS else {"original-timestamp": NOW_MS.to_bytes(8, "big")}
    headers: list[Header] = [("own", b"1"), ("retry_topic-attempts", bytes(4))]
    headers += in_sets(prefix, [of(b"orders", 17, b"one") | at])
    out = taken_in(Record(b"k", b"v", headers, NOW_MS, "dlq", 0, 3))
    letter = letter_of(out)
    assert (letter.id, letter.error) == (f"orders-0-17@{NOW_MS}", "java.E: one")
    assert (letter.origin_key, out.value) == (b"k", b"v")
    retry = transition_records.retry_record(letter, as_read(out), "retries", ROUTES)
    left = {name for name, _ in retry.headers} - letter_format.RESERVED
    assert (retry.key, retry.value, left) == (b"k", b"v", {"own"})


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.prefix)
def test_a_retry_has_no_header_of_any_framework(dialect: Dialect) -> None:
    names = {*dialect.place, dialect.timestamp or "topic", *dialect.kinds, *dialect.messages}
    foreign: list[Header] = [(f"{dialect.prefix}{name}", b"1") for name in names]
    record = as_read(stored())
    record = record._replace(headers=[*record.headers, *foreign, ("kafka_own", b"1")])
    retry = transition_records.retry_record(letter_of(stored()), record, "retries", ROUTES)
    left = {name for name, _ in retry.headers} - letter_format.RESERVED
    assert left == {"mine", "kafka_own"}


def shared(**more: bytes) -> list[Header]:
    named = {"topic": b"orders", "partition": b"2", "offset": b"17", "group": b"billing"}
    return in_sets(SHARED, [named | {"delivery.count": b"5"} | more])


def test_a_letter_of_a_share_group_is_retried_only_with_its_record() -> None:
    headers = shared(message=b"Offset rejected by client.")
    letter = letter_of(taken_in(Record(b"k", b"v", headers, NOW_MS, "dlq", 0, 3)))
    # When the original record was written nobody says.
    assert (letter.id, letter.origin_key, letter.is_null) == ("orders-2-17", b"k", False)
    assert letter.error == "billing: Offset rejected by client."
    closed = letter_of(taken_in(Record(b"k", None, headers, NOW_MS, "dlq", 0, 3)))
    assert closed.is_null
    left_out = Record(None, None, headers, NOW_MS, "dlq", 0, 3)
    reason = reason_of(taken_in(left_out))
    assert "expected the record, found neither key nor value (a share group copies it" in reason
    assert "enable=true): topic b'orders', partition b'2', offset b'17'" in reason


@pytest.mark.parametrize("number", range(4))
def test_a_foreign_letter_whose_topic_is_not_utf8_is_malformed(
    number: int,
) -> None:
    prefix, of = SETS[number]
    reason = reason_of(taken_in(from_dlq(in_sets(prefix, [of(b"\xff", 17, b"one")]))))
    assert f"expected {prefix}… to have the record's place: a valid topic name" in reason
    assert "topic b'\\xff'" in reason


@pytest.mark.parametrize("name", [b"ord\x00ers", b"ord\x1b[31mers", b"..", b"a b", b"o" * 250])
@pytest.mark.parametrize("number", range(4))
def test_a_foreign_letter_of_a_topic_that_kafka_cannot_have_is_malformed(
    number: int, name: bytes
) -> None:
    prefix, of = SETS[number]
    reason = reason_of(taken_in(from_dlq(in_sets(prefix, [of(name, 17, b"one")]))))
    assert "the record's place: a valid topic name and two numbers; found" in reason
    assert f"topic {name[:100]!r}, " in reason


def test_headers_are_produced_as_bytes_which_nothing_cuts() -> None:
    out = Outgoing("t", b"k", b"v", [("a", "x\0yé"), ("b", b"x\0y"), ("c", None)], 3)
    headers = [("a", "x\0yé".encode()), ("b", b"x\0y"), ("c", None)]
    assert out.arguments() == {**out._asdict(), "headers": headers}


def test_a_malformed_foreign_record_of_a_recreated_topic_does_not_replace_the_other() -> None:
    one = Record(b"k", b"v", [], NOW_MS, "dlq", 0, 3)
    keys = {taken_in(one._replace(timestamp=at)).key for at in (NOW_MS, NOW_MS, NOW_MS + 1)}
    assert len(keys) == 2


def test_a_letter_of_spring_that_failed_as_a_dead_letter_is_that_of_its_first_failure() -> None:
    place = in_sets(SPRING, [of_place(spring(b"orders", 17, b""))])
    failed = [*place, *in_sets(SPRING, [spring(b"x.DLT", 99, b"two")])]
    letter = letter_of(taken_in(Record(None, b"v", failed, NO_TIMESTAMP, "x.DLT.DLT", 0, 3)))
    assert (letter.id, letter.error) == ("orders-0-17", "java.E: two")


def test_a_foreign_record_that_says_nothing_is_passed_on_as_malformed() -> None:
    out = taken_in(from_dlq([("kafka_dlt-original-offset", b"17")]))
    assert (out.key, out.value, dict(out.headers)["origin-key"]) == (b"dlq-0-3", b"v", b"k")
    assert reason_of(out).endswith(
        "original-topic none, original-partition none, original-offset b'17'"
    )


def test_a_malformed_letter_keeps_its_reason_when_it_is_parked_and_reasons_differ_by_kind() -> None:
    fingerprints = set()
    for headers in ([("kafka_dlt-original-offset", b"17")], [("mine", b"1")]):
        out = taken_in(from_dlq(headers))
        malformed = Malformed(reason_of(out))
        reason, routes = decide(malformed, RetryRules()).reason, LOT_ROUTES
        assert reason is not None
        lot = transition_records.parked_record(malformed, as_read(out), reason, routes)
        assert transition_records.parse_parked(as_read(lot)) == malformed
        fingerprints.add(dict(lot.headers)[transition_records.PARKED_ERROR])
    assert len(fingerprints) == 2


def in_sets(prefix: str, sets: list[dict[str, bytes]]) -> list[Header]:
    return [(prefix + name, value) for one in sets for name, value in one.items()]


def spring(topic: bytes, offset: int, message: bytes) -> dict[str, bytes]:
    of_error = {"exception-fqcn": b"java.E", "exception-message": message}
    place = {"original-topic": topic, "original-partition": bytes(4)}
    return {**of_error, **place, "original-offset": offset.to_bytes(8, "big")}


def of_place(set_: dict[str, bytes]) -> dict[str, bytes]:
    """Leave the error out, as Spring does with all but the last."""
    return {name: value for name, value in set_.items() if "exception" not in name}


def connect(topic: bytes, offset: int, message: bytes) -> dict[str, bytes]:
    place = {"topic": topic, "partition": b"0", "offset": str(offset).encode()}
    return {**place, "exception.class.name": b"java.E", "exception.message": message}


def streams(topic: bytes, offset: int, message: bytes) -> dict[str, bytes]:
    place = {"topic": topic, "partition": b"0", "offset": str(offset).encode()}
    return {**place, "exception": b"java.E", "message": message, "stacktrace": b"at"}


SPRING, CONNECT, RETRYABLE = "kafka_dlt-", "__connect.errors.", "kafka_"
STREAMS, SHARED = "__streams.errors.", "__dlq.errors."
SETS = [(SPRING, spring), (CONNECT, connect), (RETRYABLE, spring), (STREAMS, streams)]
OfSet = Callable[[bytes, int, bytes], dict[str, bytes]]
RULES = RetryRules(of_origin={"shipments": RetrySettings(topic="shipments")})
ROUTES = Routes("dead-letters", "parking-lot", {"retries": 8, "shipments": 8})
LOT_ROUTES = Routes("dead-letters", "parking-lot", {"dead-letters": 8, "parking-lot": 8})


def retried(out: Outgoing) -> tuple[Letter, Outgoing]:
    letter = letter_of(out)
    topic = RULES.retry_topic(letter.origin_topic)
    return letter, transition_records.retry_record(letter, as_read(out), topic, ROUTES)


@pytest.mark.parametrize(("prefix", "set_"), SETS)
@pytest.mark.parametrize(("first_prefix", "first_set"), SETS)
@pytest.mark.parametrize("origin", ["orders", "shipments"])
def test_a_retry_that_fails_in_a_foreign_consumer_is_the_same_letter_again(
    prefix: str, set_: OfSet, first_prefix: str, first_set: OfSet, origin: str
) -> None:
    first = in_sets(first_prefix, [first_set(origin.encode(), 17, b"one")])
    out = taken_in(from_dlq([("trace", b"7"), *first]))
    for attempt in (1, 2, 3):
        letter, retry = retried(out)
        assert [name for name, _ in retry.headers if name.startswith((SPRING, CONNECT))] == []
        sets = in_sets(prefix, [set_(retry.topic.encode(), 90 + attempt, b"two")])
        out = taken_in(from_dlq([*retry.headers, *sets], retry.key, retry.value))
        assert read(out) == letter._replace(attempt=attempt, error="java.E: two")
        assert (out.key, out.value) == (f"{origin}-0-17".encode(), b"v")
        assert dict(out.headers)["trace"] == b"7"


@pytest.mark.parametrize(("prefix", "set_"), SETS)
def test_what_a_retry_was_made_into_is_a_letter_of_its_own(prefix: str, set_: OfSet) -> None:
    first = in_sets(prefix, [set_(b"orders", 17, b"one")])
    _, retry = retried(taken_in(from_dlq(first)))
    for offset in (9, 10):  # with the headers of what it was made of, in a topic with retries
        sets = in_sets(prefix, [set_(b"shipments", offset, b"two")])
        out = taken_in(from_dlq([*retry.headers, *sets], b"s", b"w"))
        assert (letter_of(out).id, letter_of(out).attempt) == (f"shipments-0-{offset}", 0)


def test_a_retry_that_goes_on_through_topics_of_others_does_not_go_on_for_ever() -> None:
    first = in_sets(SPRING, [spring(b"orders.retry", 1, b"one")])
    out = taken_in(from_dlq(first))
    for attempt in range(1, 9):
        letter, retry = retried(out)
        sets = [of_place(spring(b"retries", attempt, b"")), spring(b"orders.retry", attempt, b"x")]
        out = taken_in(from_dlq([*retry.headers, *in_sets(SPRING, sets)]))
        again = letter_of(out)
        assert again == letter._replace(
            id=f"orders.retry-0-{attempt}",
            origin_offset=attempt,
            attempt=attempt,
            error="java.E: x",
        )
    assert decide(again, RULES).reason


def test_an_error_of_spring_is_named_by_its_cause_or_is_that_of_a_key() -> None:
    place = spring(b"orders", 17, b"no")
    of_error = {"exception-fqcn": b"o.s.k.ListenerExecutionFailedException"}
    cause = of_error | {"exception-cause-fqcn": b"java.lang.IllegalStateException"}
    of_key = dict.fromkeys(("key-exception-fqcn", "key-exception-message"), b"no key")
    for set_, error in (
        (place | cause, "java.lang.IllegalStateException: no"),
        (of_key | of_place(place), "no key: no key"),
    ):
        letter = letter_of(taken_in(from_dlq(in_sets(SPRING, [set_]))))
        assert (letter.id, letter.error) == ("orders-0-17", error)


@pytest.mark.parametrize(("prefix", "set_"), SETS)
@pytest.mark.parametrize(("old_prefix", "old_set"), SETS)
def test_a_record_with_headers_of_another_life_is_a_letter_of_its_own(
    prefix: str, set_: OfSet, old_prefix: str, old_set: OfSet
) -> None:
    old = in_sets(old_prefix, [old_set(b"legacy", 7, b"old")])
    for offset in (50, 51):
        new = in_sets(prefix, [set_(b"orders", offset, b"new")])
        letter = letter_of(taken_in(from_dlq([*old, *new])))
        assert (letter.id, letter.error) == (f"orders-0-{offset}", "java.E: new")


def test_a_retry_without_our_headers_is_a_letter_of_the_retry_topic() -> None:
    sets = in_sets(SPRING, [spring(b"orders", 17, b"one"), spring(b"retries", 5, b"two")])
    letter = letter_of(taken_in(from_dlq(sets)))
    assert letter.id == "retries-0-5"
    assert decide(letter, RetryRules()).reason


def test_a_foreign_record_whose_last_place_is_none_is_not_taken_for_an_earlier_one() -> None:
    last = {**connect(b"orders", 18, b"two"), "offset": b"-1"}
    sets = in_sets(CONNECT, [connect(b"orders", 17, b"one"), last])
    reason = reason_of(taken_in(from_dlq(sets)))
    assert reason.endswith("topic b'orders', partition b'0', offset b'-1'")


def test_a_value_that_is_there_is_sent_though_the_letter_says_it_was_null() -> None:
    out = stored(RECORD._replace(value=None))
    letter = letter_of(out)
    assert transition_records.retry_record(letter, as_read(out), "retries", ROUTES).value is None
    retry = transition_records.retry_record(
        letter, as_read(out)._replace(value=b"v"), "retries", ROUTES
    )
    assert retry.value == b"v"
    again = failed_again(as_read(retry), "E: x", NOW)
    assert again == letter._replace(attempt=1, is_null=False)


def from_dlq(headers: Headers, key: bytes | None = b"k", value: bytes | None = b"v") -> Record:
    return Record(key, value, headers, NO_TIMESTAMP, "dlq", 0, 3)


def taken_in(foreign: Record) -> Outgoing:
    known = KnownTopics(RULES, {"dlq", "x.DLT", "x.DLT.DLT"})
    return from_foreign(foreign, NOW, "dead-letters", 8, known)


def as_read(out: Outgoing) -> Record:
    headers = [(n, v.encode() if isinstance(v, str) else v) for n, v in out.headers]
    return Record(out.key, out.value, headers, 5, out.topic, out.partition, 0)


def test_an_id_of_a_thousand_bytes_is_the_longest_and_the_error_is_cut() -> None:
    out = stored()
    for size, is_letter in ((1000, True), (1001, False)):
        key = b"i" * size
        headers = [*out.headers, ("letter-id", key), ("error", b"\xff" * 10**6)]
        found = parse(key, headers, NOW_MS)
        assert isinstance(found, Letter) == is_letter
        if isinstance(found, Letter):
            assert len(found.error) == letter_format.ERROR_BYTES


@pytest.mark.parametrize("timestamp", [-(2**63), -1, 0, 1, LATEST_MS, LATEST_MS + 1, 2**63 - 1])
def test_a_letter_has_the_same_id_with_the_time_that_a_table_keeps(timestamp: int) -> None:
    origin, kept = Coordinates("positions", 0, 7), round(instant_of(timestamp).timestamp() * 1000)
    found = letters.letter_id(origin, timestamp)
    assert found == letters.letter_id(origin, kept)
    assert found == ("positions-0-7" if timestamp <= 0 else f"positions-0-7@{kept}")
