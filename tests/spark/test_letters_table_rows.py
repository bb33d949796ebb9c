"""Rows of the table `dead_letters` as the JVM makes them, held against the rules in Python."""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from shardpost.dead_letters.model import transition_records
from shardpost.dead_letters.model.letter_format import ID, ORIGIN_KEY, LetterState
from shardpost.dead_letters.model.letter_history import Step, step_of
from shardpost.dead_letters.model.letter_parser import parse_record
from shardpost.dead_letters.model.letters import as_record, first_failure
from shardpost.dead_letters.model.transition_records import Routes, tombstone
from shardpost.dead_letters.spark.letter_steps import rows_of
from shardpost.kafka.records import Header, Outgoing, Record
from shardpost.retry_settings import RetryRules, RetrySettings

AT = datetime(2026, 11, 21, 12, 0, 0, 123000, UTC)
AT_MS = 1_795_262_400_123
RULES = RetryRules(
    RetrySettings(jitter=0.3),
    {"clients": RetrySettings(first_delay=5, factor=3, cap=100, jitter=0.1)},
)
ERRORS = [
    "ValueError: bad",
    'a.b.DecodeError: expected "x" at 17\nTraceback',
    "KeyError: '1f3b5c7d-1f3b-1f3b-1f3b-1f3b5c7d1f3b' 0xAB ümläut",
    "no class here, 3 of 4",
    "ValueError\r",
    "Undecodable: expected 1, found\u2028x\ry, found z\u0085, found",
    "Undecodable: expected 1, found x\u2028y\rz, found 2",
    "",
    "x" * 500,
]
# Keys that are no letter ids: no text, none at all, steering a terminal, long.
KEYS = [
    *(
        b"\xff\xfe",
        b"",
        b"a\nb",
        b"\x1b[31mred",
        "\u202eid".encode(),
        "Schl\u00fcssel\u00a0".encode(),
    ),
    *(b"\xc0\x80", b"\xed\xa0\x80", b"k" * 1000, b"k" * 1001, b"\xff" * 1000, b"\xff" * 1001),
]
# Ids of letters that have the form of other names, or nearly; and long ones.
IDS = [
    b"plain",
    b"a~1",
    b"a~b",
    b"a\n~12",
    b"a~1\n",
    b"~0",
    b"t-0-5",
    b"t-0-5@77",
    b"t-0-5@",
    b"tt-0-5",
]
IDS += [b"x" * 998, b"x" * 999, b"a\x1bb"]
NAMED: Header = ("letter-name", b"other~1")
# When the store took a letter, as somebody says who may be wrong.
STORED_AT: list[str | bytes] = [
    str(AT_MS - 5_000),
    str(AT_MS + 1),
    "0",
    "-1",
    "soon",
    "",
    "9" * 19,
    "9" * 20,
    b"\xff",
]
SCHEMA = (
    "key BINARY, value BINARY, `partition` INT, offset BIGINT, timestamp TIMESTAMP,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>, timestampType INT"
)


def letter(n: int, error: str, topic: str = "positions", attempt: int = 0) -> Outgoing:
    record = Record(b"k\xff", b"value", [("mine", None)], AT_MS, topic, 1, n)
    made = first_failure(record, error, AT)._replace(attempt=attempt)
    return as_record(made, record, "dead-letters", 4)


def records() -> list[Record]:
    good = [letter(n, error) for n, error in enumerate(ERRORS)]
    good += [letter(100 + n, "E: x", "clients", attempt) for n, attempt in enumerate((1, 3, 9999))]
    wrong: list[tuple[str, str | bytes]] = [
        ("attempt", "-1"),
        ("attempt", "10000"),
        ("attempt", str(10**30)),
        ("attempt", "7\n"),
        ("attempt", " 7"),
        ("attempt", "+7"),
        ("attempt", "007"),
        ("failed-at", "0001-01-01T00:00:00Z"),
        ("failed-at", "soon"),
        ("failed-at", "2027-01-01T00:00:00Z"),
        ("origin-offset", str(2**63)),
        ("origin-partition", "1.5"),
        ("origin-partition", str(2**31)),
        ("letter-id", "another"),
        ("origin-topic", b"\xff"),
        ("error", b"\xff"),
    ]
    wrong += [("stored-at", text) for text in STORED_AT]
    spoilt = [good[0]._replace(headers=[*good[0].headers, header]) for header in wrong]
    bad = [
        *spoilt,
        Outgoing("", b"junk", b"", []),
        Outgoing("", b"twice", b"1", [("error", b"a"), ("error", b"B: 2"), ("attempt", b"7")]),
        Outgoing("", b"minus", b"1", [("attempt", b"-1"), ("origin-topic", b"t")]),
        Outgoing("", b"line", b"1", [("attempt", b"7\n")]),
        *(Outgoing("", key, b"1", []) for key in KEYS),
        *(with_id(name) for name in IDS),
        *(with_id(name, key) for name in IDS for key in (b"", b"k1", b"k2", b"k3", b"k4", b"k5")),
        *(Outgoing("", key, b"1", [*good[0].headers, ("letter-id", key)]) for key in KEYS),
    ]
    of_letter = Record(b"positions-1-0", b"v", [], AT_MS, "", 0, 0)
    of_misplaced = as_read(letter(7, "E: x"))
    gone = [
        tombstone(of_letter, 3, LetterState.RETRIED, AT),
        tombstone(of_letter, 3, LetterState.PARKED, AT),
        tombstone(of_letter, 3, LetterState.REDRIVEN, AT),
        tombstone(of_letter, None, LetterState.DROPPED, AT),
        Outgoing("", b"by hand", None, []),
        Outgoing("", b"by another", None, [("state", b"gone"), ("attempt", b"3"), NAMED]),
        *(removed(of_misplaced, state) for state in (LetterState.RETRIED, LetterState.PARKED)),
        Outgoing("", b"empty", None, [("state", b"retried"), ("letter-name", b"")]),
        Outgoing("", b"odd", None, [("state", b"retried"), ("letter-name", b"\xff")]),
    ]
    all_of_them = [*good, *bad, *gone]
    count = len(all_of_them)  # first with the times of producers, then with the broker's
    return [
        Record(out.key, out.value, _raw(out.headers), AT_MS, "t", 0, n, n >= count)
        for n, out in enumerate(all_of_them * 2)
    ]


def with_id(letter_id: bytes, origin_key: bytes | None = None) -> Outgoing:
    made = letter(5, "E: x")
    headers = [h for h in made.headers if h[0] not in (ID, ORIGIN_KEY)]
    headers += (
        [(ID, letter_id)] if origin_key is None else [(ID, letter_id), (ORIGIN_KEY, origin_key)]
    )
    return made._replace(key=letter_id, headers=headers)


def as_read(out: Outgoing) -> Record:
    return Record(out.key, out.value, _raw(out.headers), AT_MS, "t", 1, 0)


def removed(of: Record, state: LetterState) -> Outgoing:
    routes = Routes("t", "parking-lot", {"t": 4, "parking-lot": 4})
    return transition_records.removed(parse_record(of), of, state, AT, routes)


def _raw(headers: Any) -> list[tuple[str, bytes | None]]:
    return [(name, v.encode() if isinstance(v, str) else v) for name, v in headers]


def test_the_jvm_reads_steps_as_python_does(spark: SparkSession) -> None:
    found = records()
    frame = spark.createDataFrame(
        [(r.key, r.value, 0, r.offset, AT, list(r.headers), int(r.is_append_time)) for r in found],
        SCHEMA,
    )
    for count in (1, 4, None):
        named = rows_of(frame, "t", store_partitions=count, rules=RULES)
        rows = named.orderBy("offset").collect()
        expected = [step_of(record, RULES, store_partitions=count) for record in found]
        for row, step in zip(rows, filter(None, expected), strict=True):
            assert _step(row) == step


def _step(row: Any) -> Step:
    def aware(at: datetime | None) -> datetime | None:
        return at and at.astimezone(UTC)

    return Step(
        row["id"],
        LetterState(row["state"]),
        row["attempt"],
        aware(row["at"]) or AT,
        row["topic"],
        row["partition"],
        row["offset"],
        row["origin_topic"],
        row["error"],
        row["fingerprint"],
        aware(row["due"]),
        row["origin_partition"],
        row["origin_offset"],
        None if row["origin_key"] is None else bytes(row["origin_key"]),
        row["size"],
        aware(row["failed_at"]),
        key=row["key"],
    )
