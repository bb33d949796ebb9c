"""Every reader of other people's records, fed with what no honest program writes.

It returns a value, or says what is wrong with it; where an error is declared, that one. A value is
then used as its callers use it: it is written again, printed and compared. None of that may fail
either, since an error there would stop the records behind it.
"""

import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpost import decisions
from shardpost.dead_letters.model import letter_format, letter_history, transition_records
from shardpost.dead_letters.model.foreign_letters import KnownTopics, from_foreign
from shardpost.dead_letters.model.letters import as_record, failure, fitting
from shardpost.dead_letters.model.retry_policy import Outcome, SelectedLetter, decide
from shardpost.dead_letters.model.transition_records import ParkedGroup, Routes, outcome_records
from shardpost.errors import ShardpostError
from shardpost.holders.model.fields import CLIENT_FIELDS, EXCHANGE_FIELDS, POSITION_FIELDS
from shardpost.holders.model.published import Published
from shardpost.holders.rejected_letters import committed_sent
from shardpost.imports.list_files import ListReader
from shardpost.imports.model.list_format import TARGETS
from shardpost.imports.model.source import FileSource, Format
from shardpost.kafka.greeting import metadata_level
from shardpost.kafka.offsets import CommittedOffset
from shardpost.kafka.records import (
    Header,
    Outgoing,
    PartitionMark,
    Record,
    TopicPartition,
    batch_bytes,
)
from shardpost.lag.offset_expiry import OffsetCommits, UnknownFormatError
from shardpost.run_requests.airflow_api import AirflowApi
from shardpost.run_requests.model import commands
from shardpost.run_requests.model.commands import MOST_NESTED, Command, CommandState, next_action
from shardpost.run_requests.model.requests import NotRun, RequestRules, decide_record
from shardpost.run_requests.request_client import Decided
from shardpost.topics.model.cluster import release
from shardpost.values.retry_settings import RetryRules
from shardpost.weekly_email.model import ledger
from shardpost.weekly_email.model.week_report import cause_of
from tests.support import strict_decoder
from tests.support.how_far import up_to

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MILLISECONDS = int(NOW.timestamp() * 1000)

BYTES = st.binary(max_size=9) | st.sampled_from(
    [b"", b"\xff", b"\x00", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf0\x9f"]
)
KEYS = BYTES | st.sampled_from(
    [None, b"k", "größe".encode(), b"2026-W47/c", b"2026-W47", b"x" * 2_000]
)
TIMES = st.sampled_from([MILLISECONDS, -1, 0, -(2**63), 2**63 - 1, 253_402_300_800_000])

# JSON as it is written: numbers that no two languages hold alike, halves of surrogate pairs, what
# is no JSON at all, and depth.
ODD = (
    *("1e400", "-1e400", "1e-400", "-0", "-0.0", "NaN", "-Infinity", "1.5", "7", "-7", "01"),
    *(str(2**63), "1e308"),
    *(r'"\ud800"', r'"\udc00\ud800"', r'"\u0000"', '"\x00"', '"ü"', '""', '"7"', '"k"', '"a@b"'),
    *("null", "true", "[]", "{}", "[[]]", '{"":{}}', "", "}", "[", "]"),
    *('"0001-01-01T00:00:00+14:00"', '"9999-12-31T23:59:59-14:00"', '"24:00"', '[["a",1]]'),
    *('"2026-11-21T12:00:00+00:00"', '"2026-11-21T12:00:00"', '"2026-11-21"', '"2026-W47"'),
)
# int() takes up to 4,300 digits, a double no whole number of more than 309.
LONG = st.builds(
    lambda size, form: form.format("9" * size),
    st.sampled_from([310, 4_300, 4_301, 99_999]),
    st.sampled_from(["{}", "-{}", "0.{}", "1e{}", '"{}"']),
)
DEEP = st.builds(
    lambda depth, pair: pair[0] * depth + pair[1] + pair[2] * depth,
    st.sampled_from([99, 101, 20_000]) | st.integers(900, 1_000),
    st.sampled_from([("[", "", "]"), ('{"a":', "1", "}"), ("[", "", "")]),
)
ODD_JSON = st.sampled_from(ODD) | LONG | DEEP


def json_values(good: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """Return a good value, whose fields may be odd, missing or there twice; cut off, or broken."""
    written = [f'"{name}":{json.dumps(value)}' for name, value in good.items()]
    names = st.sampled_from([*good, "x", "", r"\ud800"])
    odd = st.builds('"{}":{}'.format, names, ODD_JSON)
    some = st.just(written) | st.lists(st.sampled_from(written))
    # Of a field that is there twice, the last counts.
    fields = st.builds(list.__add__, some, st.lists(odd, max_size=2))
    form = fields.map(lambda found: f"{{{','.join(found)}}}")
    raw = (form | form | ODD_JSON | st.builds("[{},{}]".format, ODD_JSON, form)).map(str.encode)
    places = st.integers(0, 99)
    cut = st.builds(lambda value, at: value[:at], raw, places)
    broken = st.builds(lambda value, at, new: value[:at] + new + value[at:], raw, places, BYTES)
    return raw | raw | cut | broken


def headers_of(*names: str) -> st.SearchStrategy[list[Header]]:
    """Return headers of those names, each with a value that may be right for one of them."""
    values = BYTES | st.sampled_from(
        [
            *(None, b"7", b"-0", b"+7", b" 7", b"1e3", b"9" * 18, b"9" * 19, b"9" * 99),
            *("٣".encode(), b"true", b"x" * 3_000, b"k", b"positions", b"retries", b"waiting"),
            *(b"2026-11-21T12:00:00+00:00", b"2026-11-21", b"0001-01-01T00:00:00+14:00"),
            *(b"9999-12-31T23:59:59-14:00", b"\x7f\xff\xff\xff", b"\x7f" + b"\xff" * 7, b"\0" * 8),
            *(b"malformed: x", b"a.B: c", b"a=1,b,=2,c=" + b"9" * 99, b'"' * 99, b"parked"),
        ]
    )
    return st.lists(st.tuples(st.sampled_from(names), values), max_size=2 * len(names))


def records(topic: str, values: st.SearchStrategy[bytes]) -> st.SearchStrategy[Record]:
    """Return records of a topic."""
    return st.builds(
        partial(Record, topic=topic, partition=0, offset=7),
        *(KEYS, st.none() | values | values | values, st.just([]), TIMES),
        is_append_time=st.booleans(),
    )


def written(out: Outgoing) -> None:
    """Encode a record as the client does, and count its bytes."""
    assert batch_bytes(out) > 0
    assert all(isinstance(part, bytes | None) for part in (out.key, out.value))


# Run requests, run commands, decisions

RULES = RequestRules(frozenset({"a"}), timedelta(days=6), 1, NOW)
REQUEST = {"Dag": "a", "Conf": {"week": "2026-W47"}, "RequestedBy": "anna"}
COMMAND = REQUEST | {"State": "started", "RequestOffset": 7, "RunId": "request__k__7-0"}
DECISION = {"Kind": "conflict", "Who": "anna", "When": "2026-11-21T12:00:00Z", "Why": "x"}
ACTIVE = Command("k", CommandState.STARTED, "a", {}, "anna", 3, "request__k__3-0")


def use_request(record: Record) -> None:
    """Decide on a request; a command that it wins must read back as it was written."""
    for active in (None, ACTIVE):
        match decide_record(record, active, None, RULES):
            case Command() as command:
                entry = commands.decode(record.key, command.value(), NOW)
                assert entry is not None
                assert entry.command == command
                use_command(record._replace(value=command.value()))
            case NotRun(reason, kind):
                about = record.key or b"-"
                decision = decisions.Decision(about, kind, "x", NOW, reason)
                assert decisions.decode(about, decision.value()) is not None


def use_command(record: Record) -> None:
    """Start what a command says, note that, and print it."""
    entry = commands.decode(record.key, record.value, NOW)
    if entry is None or entry.command is None:
        return
    command = entry.command
    next_action(command, None)
    again = commands.decode(command.key.encode(), command.value(), NOW)
    assert again is not None
    assert again.command == command
    json.dumps(vars(command), allow_nan=False, ensure_ascii=False).encode()
    decide_record(record._replace(value=json.dumps(REQUEST).encode()), command, None, RULES)
    if command.state is not CommandState.UNREADABLE:
        transport = httpx.MockTransport(_accepts)
        api = AirflowApi(httpx.Client(base_url="http://airflow", transport=transport))
        with suppress(ShardpostError):
            api.start(command.dag, command.run_id, command.conf, command.requested_by)


def _accepts(_asked: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"is_stale": False, "is_paused": False})


def use_decision(record: Record) -> None:
    """List a decision as `runs list` and `letters show` do."""
    decision = decisions.decode(record.key, record.value)
    if decision is not None:
        assert decision.when >= NOW or decision.when < NOW
        json.dumps(decision.as_json(), ensure_ascii=False).encode()
        row = vars(Decided(decision, record.value).row())
        json.dumps(row, ensure_ascii=False, default=str).encode()


def deep(depth: int) -> bytes:
    """Return a request of so many levels."""
    inner = "[" * (depth - 2) + "]" * (depth - 2)
    return f'{{"Dag":"a","Conf":{{"x":{inner}}}}}'.encode()


def test_a_request_is_refused_from_one_depth_on_and_no_depth_stops_those_behind_it() -> None:
    for depth in [3, 99, MOST_NESTED, MOST_NESTED + 1, *range(900, 1_010), 5_000]:
        record = Record(b"k", deep(depth), [], MILLISECONDS, "run-requests", 0, 7)
        use_request(record)
        assert isinstance(decide_record(record, None, None, RULES), NotRun) == (depth > MOST_NESTED)


# Positions, clients and exchanges: the reference that Spark's decoder is compared with

POSITION = {"Client": "c", "Ticker": "T", "Amount": 1, "Exchange": "X"}


def use_input(record: Record) -> None:
    """Decode a value as each of the three inputs."""
    for fields in (POSITION_FIELDS, CLIENT_FIELDS, EXCHANGE_FIELDS):
        found = strict_decoder.decode(record.value or b"", fields)
        assert (found.reason is None) == bool(found.columns)


# The ledger

ENTRY = {"State": "sent", "MessageId": "<x@y>", "Reason": 'it\'s "so"', "Resends": 1}


def use_entry(record: Record) -> None:
    """Write a row of the ledger again, as one that is settled."""
    entry = ledger.decode(record.key, record.value, "2026-W47")
    if entry is not None:
        entry.id.key("2026-W47")
        entry.value()
        cause_of(entry.reason, entry.client).encode(errors="replace")


def use_close(record: Record) -> None:
    """Add up what a closed shard says."""
    assert sum(ledger.closed_counts(record.value).values()) < 2**63


# What groups have noted with their offsets

PUBLISHED = {"snapshot": 7, "run": "x", "largest": 9, "low": 0, "end": 9, "partly": [8, "y"]}
SENT = {"of": 7, "run": "x", "after": [7, "positions", 0, 9]}


def use_published(record: Record) -> None:
    """Compare what was noted with what there is."""
    metadata = (record.value or b"").decode(errors="replace")
    noted = Published.of(metadata or None)
    noted.what_is_wrong({7: "x"}, PartitionMark(0, 9))
    assert noted.since(9) >= 0
    assert Published.of(noted.then(noted.at, 9, 9).as_metadata()).end == 9


def use_sent(record: Record) -> None:
    """Go on behind the last letter that was sent."""
    metadata = (record.value or b"").decode(errors="replace")
    if known := committed_sent(CommittedOffset(7, metadata)):
        sent, of = known
        assert sent.after is None or sent.after.sql_of_those(">")
        of.is_in({7: "x"})


CLOSED = {"State": "closed", "At": NOW.isoformat(), "Counts": {"sent": 1, "failed": 0}}
READERS: dict[str, tuple[Callable[[Record], None], dict[str, Any]]] = {
    "inputs": (use_input, POSITION),
    "run requests": (use_request, REQUEST),
    "run commands": (use_command, COMMAND),
    "decisions": (use_decision, DECISION),
    "conflicts": (use_decision, DECISION | REQUEST),
    "ledger": (use_entry, ENTRY),
    "closed weeks": (use_close, CLOSED),
    "published": (use_published, PUBLISHED),
    "letters sent": (use_sent, SENT),
}


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=up_to(300, 30))
@given(st.data())
def test_no_value_stops_those_behind_it(name: str, data: st.DataObject) -> None:
    use, honest = READERS[name]
    use(data.draw(records("x", json_values(honest))))


# Dead letters, ours and of others

FOREIGN = [
    *(f"__connect.errors.{name}" for name in ("topic", "partition", "offset")),
    *("__connect.errors.exception.message", "kafka_dlt-exception-fqcn"),
    *(f"kafka_dlt-original-{name}" for name in ("topic", "partition", "offset", "timestamp")),
]
OURS = [*letter_format.RESERVED, transition_records.STATE, transition_records.NAME, "x"]
PARKED = [name for name in vars(transition_records).values() if str(name).startswith("parked-")]
LETTER_HEADERS = headers_of(*OURS) | headers_of(*FOREIGN) | headers_of(*OURS, *FOREIGN, *PARKED)
GOOD_HEADERS: list[Header] = [
    *(("letter-id", b"k"), ("origin-topic", b"positions"), ("origin-partition", b"0")),
    *(("origin-offset", b"7"), ("attempt", b"1"), ("error", b"a.B: c")),
    ("failed-at", b"2026-11-21T12:00:00+00:00"),
]
ROUTES = Routes("dead-letters", "parking-lot", {"dead-letters": 2, "parking-lot": 2, "retries": 2})
RETRIES = RetryRules(fatal=frozenset({"B"}))


def use_letter(record: Record) -> None:
    """Do with a letter whatever a sweep, a list and a redrive may do."""
    letter = letter_format.parse_record(record)
    decide(letter, RETRIES)
    for partitions in (None, 2):
        step = letter_history.step_of(record, store_partitions=partitions)
        assert step is None or json.dumps(step.by(RETRIES).as_json(), ensure_ascii=False).encode()
    transition_records.resolved_attempt(record.headers)
    transition_records.resolved_offset(record.headers, record.offset)
    transition_records.parse_parked(record)
    for outcome in Outcome if record.value is not None else ():
        made = outcome_records(record, SelectedLetter(7, outcome, 7, 1, b""), RETRIES, ROUTES, NOW)
        for out in made:
            written(out)
            ParkedGroup.of(dict(out.headers))


def use_foreign(record: Record) -> None:
    """Take in a dead letter of another program, and read it as one of ours."""
    made = from_foreign(record, NOW, "dead-letters", 2, KnownTopics(RETRIES, {"orders.DLT"}))
    written(made)
    use_letter(_read(made))


def use_failed(record: Record) -> None:
    """Make a letter of a record of a retry topic, whose headers are anybody's."""
    made = as_record(failure(record, "x", NOW, {"retries"}), record, "dead-letters", 2)
    written(made)
    written(fitting(made, 9_000))


def _read(out: Outgoing) -> Record:
    headers = [(name, v.encode() if isinstance(v, str) else v) for name, v in out.headers]
    return Record(out.key, out.value, headers, MILLISECONDS, out.topic, out.partition, 7)


LETTER_USES = {"ours": use_letter, "foreign": use_foreign, "retries": use_failed}


@pytest.mark.parametrize("name", LETTER_USES)
@settings(max_examples=up_to(300, 30))
@given(records("retries", BYTES), LETTER_HEADERS, st.booleans())
def test_no_header_stops_the_letters_behind_it(
    name: str, record: Record, headers: list[Header], is_good: bool
) -> None:
    own = [*GOOD_HEADERS, *headers] if is_good else headers
    LETTER_USES[name](record._replace(headers=own))


# Lists that are imported

LISTED = {"PositionId": "1", "Client": "c", "Ticker": "T", "Amount": 1, "Exchange": "X"}
PIECES = [",", '"', '""', "\n", "\r\n", "\r", "1", "é", "\0", "PositionId", "x" * 200_000, "\ufeff"]
CSV = st.lists(st.sampled_from(PIECES), max_size=20).map(lambda found: "".join(found).encode())
HEADER = ",".join(LISTED).encode() + b"\n"
LISTS = json_values(LISTED) | CSV | BYTES | st.builds(HEADER.__add__, CSV)


@settings(max_examples=up_to(300, 30))
@given(LISTS, st.sampled_from(Format), st.sampled_from(["", ".gz"]), st.booleans())
def test_no_file_is_more_than_a_list_that_is_refused(
    content: bytes, kind: Format, ending: str, is_packed: bool
) -> None:
    with TemporaryDirectory() as folder, suppress(ShardpostError):
        path = Path(folder, f"list.{kind}{ending}")
        path.write_bytes(gzip.compress(content) if is_packed else content)
        reader = ListReader(FileSource(str(path), kind), TARGETS["positions"])
        assert sum(part.num_rows for part in reader.parts()) == reader.rows


# What brokers and Airflow answer

ANSWERS = ("dag_run_id", "state", "end_date", "start_date", "run_after", "is_stale", "is_paused")
ANSWER = dict.fromkeys(ANSWERS, "success") | {"end_date": "2026-11-21T12:00:00Z", "detail": "no"}


@settings(max_examples=up_to(300, 30))
@given(json_values(ANSWER), st.sampled_from([200, 400, 404, 409, 422]))
def test_no_answer_of_airflow_is_more_than_an_error_of_its_command(
    content: bytes, status: int
) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, content=content))
    api = AirflowApi(httpx.Client(base_url="http://airflow", transport=transport))
    calls: list[Callable[[], object]] = [
        lambda: api.run("a", "r"),
        lambda: api.start("a", "r", {}, "note"),
        lambda: api.trigger("a", {}),
    ]
    for call in calls:
        try:
            found = call()
        except ShardpostError:
            continue
        if isinstance(found, commands.AirflowRun):
            next_action(ACTIVE, found)
            assert found.ended_at is None or found.ended_at.tzinfo is not None


@given(st.binary(max_size=60), st.integers(0, 5))
def test_no_record_of_consumer_offsets_is_more_than_unknown(value: bytes, version: int) -> None:
    found = OffsetCommits()
    place = TopicPartition("t", 0)
    found.add(b"\0\x01\0\x01g\0\x01t\0\0\0\0", version.to_bytes(2) + value)
    found.add(b"\0\x02\0\x01g", version.to_bytes(2) + value)
    with suppress(UnknownFormatError):
        found.committed_at("g", place)
    with suppress(UnknownFormatError):
        found.empty_since("g")


@given(st.binary(max_size=60), st.booleans())
def test_no_answer_of_a_broker_is_more_than_an_error_of_the_network(
    answer: bytes, is_response: bool
) -> None:
    try:
        level = metadata_level(b"\0\0\0\x01\0\0" + answer if is_response else answer)
    except OSError:
        return
    assert level is None or release(level)
