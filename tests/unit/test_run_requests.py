"""How a request is parsed, what is decided on it, and the id of the run that it wins."""

import json
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpost.decisions import Decision, Kind
from shardpost.decisions import decode as decode_decision
from shardpost.errors import ShardpostError, UsageError
from shardpost.kafka.records import Outgoing, Record, partition_of
from shardpost.kafka.transactions import produce
from shardpost.run_requests.airflow_api import AirflowRuns
from shardpost.run_requests.model.commands import (
    LONG_AGO,
    AirflowRun,
    Command,
    CommandEntry,
    CommandState,
    NextStep,
    Release,
    decode,
    fold,
    next_action,
)
from shardpost.run_requests.model.requests import (
    LONGEST_KEY,
    AlreadyRunning,
    Forward,
    NotRun,
    RequestDecision,
    RequestRules,
    RequestStatus,
    decide_record,
    parse,
    run_id,
    started_by,
    status_of,
)
from shardpost.run_requests.request_client import commands_in_force, conf_of, release, send_request
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
RULES = RequestRules(frozenset({"a", "b"}), timedelta(days=6), 4, NOW)
ALLOWED = re.compile(r"^[A-Za-z0-9_.~:+-]+$")  # Airflow's [scheduler] allowed_run_id_pattern


def record(value: object, key: str = "k", offset: int = 7, at: datetime = NOW) -> Record:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return raw_record(key.encode(), raw, partition_of(key, RULES.partitions), offset, at)


def raw_record(
    key: bytes | None, value: bytes, partition: int = 0, offset: int = 0, at: datetime = NOW
) -> Record:
    timestamp_ms = round(at.timestamp() * 1000)
    return Record(key, value, [], timestamp_ms, "run-requests", partition, offset)


def asks(dag: str = "a", conf: object = None, by: str = "anna") -> dict[str, Any]:
    return {"Dag": dag, "Conf": {} if conf is None else conf, "RequestedBy": by}


def command(
    conf: dict[str, Any] | None = None, state: CommandState = CommandState.STARTED
) -> Command:
    return Command("k", state, "a", conf or {}, "anna", 3, "request__k__3-0")


def held(
    conf: dict[str, Any] | None = None, state: CommandState = CommandState.STARTED
) -> CommandEntry:
    return CommandEntry("k", command(conf, state), NOW)


def outcome(
    asked: Record, entry: CommandEntry | None = None, release: Release | None = None
) -> RequestDecision:
    return decide_record(asked, entry.command if entry else None, release, RULES)


def is_not_run(found: RequestDecision, kind: Kind) -> bool:
    return isinstance(found, NotRun) and found.kind is kind


def test_a_request_is_read_as_the_contract_has_it() -> None:
    issued, name = CommandState.ISSUED, run_id("k", 7, int(NOW.timestamp() * 1000))
    for form, conf, by in (
        (asks(conf={"week": "2026-W47"}), {"week": "2026-W47"}, "anna"),
        ({"Dag": "a", "More": 1}, {}, "(not said)"),
    ):
        command = Command("k", issued, "a", conf, by, 7, name)
        assert parse(record(form)) == command


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "expected a value, found an empty text"),
        (b"{", "expected a key in UTF-8 and a value in JSON"),
        (b"\xff", "expected a key in UTF-8 and a value in JSON"),
        (b"[1]", "expected an object, found [1]"),
        (b"null", "expected an object, found null"),
        (b"{}", "expected Dag to be the name of a DAG, found none"),
        (b'{"Dag":7}', "expected Dag to be the name of a DAG, found 7"),
        (b'{"Dag":""}', 'expected Dag to be the name of a DAG, found ""'),
        (b'{"Dag":"a","Conf":null}', "expected Conf to be an object, found null"),
        (b'{"Dag":"a","RequestedBy":[]}', "expected RequestedBy to be text, found []"),
        (b'{"Dag":"a","Conf":{"x":NaN}}', "a value in JSON: Out of range float"),
        (b'{"Dag":"a","Conf":{"x":1e999}}', "a number that fits a double, found 1e999: send it"),
        (b'{"Dag":"a","Conf":{"x":1e-99999999999999999999}}', "a number that fits a double"),
        (b'{"Dag":"a","Conf":{"x":0.100000000000000000000000000001}}', "that fits a double"),
        (b'{"Dag":"a","Conf":{"x":12345678901234567.5}}', "found 12345678901234567.5: send it"),
        (
            b'{"Dag":"a","Conf":{"x":12345678901234567890123}}',
            "found 12345678901234567890123: send",
        ),
        (b'{"Dag":"a","Conf":{"x":-9007199254740993}}', "found -9007199254740993: send it as"),
        (b'{"Dag":"a","Conf":{"x":-0}}', "a number that fits a double, found -0: send it"),
        (b'{"Dag":"a","Conf":' + b"9" * 900 + b"}", "a number that fits a double, found 9999"),
        (b'{"Dag":"a","Dag":"b"}', "the same name twice in one object: 'Dag'"),
        (b'{"Dag":"a","Conf":{"a":1,"a":1}}', "the same name twice in one object: 'a'"),
        (b'\xef\xbb\xbf{"Dag":"a"}', "Unexpected UTF-8 BOM"),
        ('{"Dag":"a"}'.encode("utf-16"), "can't decode byte 0xff"),
        ('{"Dag":"a"}'.encode("utf-16-le"), "Expecting property name"),
        (b"\x00\x00\x00\x00\x07" + b'{"Dag":"a"}', "Expecting value"),
        (b'{"Dag":"a","Conf":{"x":"\\ud800"}}', "surrogates not allowed"),
        (b" " * 65_537, "of at most 65536 bytes, found 65537"),
        (b"[" * 1000, "expected a key in UTF-8 and a value in JSON"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(value: bytes, reason: str) -> None:
    found = outcome(record(value))
    assert isinstance(found, NotRun)
    assert reason in found.reason


def test_a_request_without_a_usable_key_is_refused() -> None:
    for key in (None, b"", b"\xff", b"k" * 65_537):
        assert is_not_run(outcome(raw_record(key, json.dumps(asks()).encode())), Kind.REFUSED)


@given(st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_no_record_whatever_is_more_than_refused(value: bytes, key: bytes | None) -> None:
    parse(raw_record(key, value))


def test_the_first_request_of_a_free_key_wins() -> None:
    name = "request__k__7-1795262400000"
    won = Command("k", CommandState.ISSUED, "a", {"x": 1}, "anna", 7, name)
    assert outcome(record(asks(conf={"x": 1}))) == won


def test_the_same_payload_is_already_running_whoever_asks_and_however_it_is_written() -> None:
    entry = held({"x": 1, "y": [True]})
    asked = record(b'{"Conf":{"y":[true],"x":1},"Dag":"a","RequestedBy":"ben"}')
    assert outcome(asked, entry) == AlreadyRunning(command({"x": 1, "y": [True]}))


def test_numbers_reach_airflow_as_they_were_written() -> None:
    text = b'{"Dag":"a","Conf":{"x":[0.10,1.5e3,-2,9007199254740992,-0.0,1e23]}}'
    found = parse(record(text))
    assert isinstance(found, Command)
    assert json.dumps(found.conf) == '{"x": [0.1, 1500.0, -2, 9007199254740992, -0.0, 1e+23]}'
    with pytest.raises(UsageError, match=r"--conf: .* a number that fits a double, found 0\.3000"):
        conf_of("--conf", '{"x": 0.3000000000000000000000001}')


def test_an_integer_of_any_length_is_refused_in_our_words() -> None:
    with pytest.raises(UsageError, match=r"a number that fits a double, found 9{40}…: send it"):
        conf_of("--conf", '{"x": ' + "9" * 60_000 + "}")


@pytest.mark.parametrize("asked", [asks("b"), asks(conf={"x": True}), asks(conf={"x": "1"})])
def test_another_payload_is_a_conflict(asked: dict[str, Any]) -> None:
    assert is_not_run(outcome(record(asked), held({"x": 1})), Kind.CONFLICT)


def test_a_command_that_cannot_be_read_equals_no_request() -> None:
    assert is_not_run(outcome(record(asks()), held(state=CommandState.UNREADABLE)), Kind.CONFLICT)


def test_a_request_from_before_the_end_of_a_run_came_while_it_ran() -> None:
    ended = Release(NOW, "run … ended: success")
    before, at = NOW - timedelta(milliseconds=1), NOW
    assert outcome(record(asks(), at=before), held(), ended) == AlreadyRunning(command())
    assert isinstance(outcome(record(asks(), at=at), held(), ended), Command)
    deleted = Release(LONG_AGO, "run … was deleted", deleted=True)
    assert isinstance(outcome(record(asks(), at=before), held(), deleted), Command)


def test_only_listed_dags_and_recent_requests_are_run() -> None:
    assert is_not_run(outcome(record(asks("c"))), Kind.REFUSED)
    assert is_not_run(outcome(record(asks("c")), held()), Kind.REFUSED)
    old = NOW - timedelta(days=6, milliseconds=1)
    refused = outcome(record(asks(), at=old))
    assert isinstance(refused, NotRun)
    assert "more than 6 days ago" in refused.reason
    assert isinstance(outcome(record(asks(), at=NOW - timedelta(days=6))), Command)


def test_a_request_of_ours_has_no_unknown_param_of_a_dag_of_ours(
    kafka: MemoryKafka,
) -> None:
    asked = asks("weekly_email", {"weak": "2026-W47", "early": True, "x" * 99: 1})
    said = "weak, " + "x" * 39 + "…: no such param; expected week, shards, dry_run, "
    assert isinstance(parse(record(asked)), Command)  # its run says so: another one may be active
    with pytest.raises(UsageError, match=said):
        send_request(installed(kafka.settings).kafka, "k", asked)
    with pytest.raises(UsageError, match="dry_run: no such param; expected none"):
        send_request(
            installed(kafka.settings).kafka, "k", asks("sweep_dead_letters", {"dry_run": True})
        )


class Noting:
    """An Airflow that notes how DAGs, and notes of runs, reach it."""

    def __init__(self) -> None:
        self.dags: list[str] = []
        self.note = ""

    def run(self, dag: str, _run: str) -> None:
        self.dags.append(dag)

    def start(self, dag: str, _run: str, _conf: dict[str, Any], note: str) -> None:
        self.dags.append(dag)
        self.note = note


def test_only_dags_of_ours_have_the_name_of_the_installation() -> None:
    api = Noting()
    runs = AirflowRuns(api)
    runs.id_of = "us_{}".format
    for dag in ("reports", "weekly_email", "watch_kafka"):
        asked = Command("k", CommandState.ISSUED, dag, {}, "anna", 3, "request__k__3-0")
        runs.find(asked)
        runs.start(asked, lambda: None)
    assert api.dags == [
        *("reports", "reports"),
        *("us_weekly_email", "us_weekly_email"),
        *("us_watch_kafka", "us_watch_kafka"),
    ]


@pytest.mark.parametrize("key", ["weekly", "a, requested by eve"])
def test_a_requested_run_is_by_who_requested_it_and_not_by_who_dispatched_it(key: str) -> None:
    api = Noting()
    asked = Command(key, CommandState.ISSUED, "a", {}, "anna", 3, run_id(key, 3, 0))
    AirflowRuns(api).start(asked, lambda: None)

    def by(run_type: str, run: str, note: str | None) -> str | None:
        found = {"run_type": run_type, "run_id": run, "note": note}
        return started_by(SimpleNamespace(triggering_user_name="ben", **found))

    assert by("operator_triggered", asked.run_id, api.note) == "anna"
    assert by("operator_triggered", asked.run_id, None) is None
    assert by("operator_triggered", asked.run_id, "looked at") is None
    assert by("operator_triggered", "of_another_dag", api.note) == "ben"
    assert by("manual", asked.run_id, api.note) == "ben"


def test_a_request_in_another_partition_than_its_keys_goes_there() -> None:
    astray = record(asks())
    right = astray.partition
    moved = astray._replace(partition=(right + 1) % 4)
    assert outcome(moved, held()) == Forward(right)


# Run ids

KEYS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200) | st.text("a_~.", min_size=1)


@given(KEYS, st.integers(0, 2**63 - 1), st.integers(0, 2**42))
def test_a_run_id_has_only_what_airflow_allows_and_is_never_taken_for_airflows_own(
    key: str, offset: int, at: int
) -> None:
    made = run_id(key, offset, at)
    assert ALLOWED.match(made)
    assert "/" not in made
    assert len(made) <= len("request__") + LONGEST_KEY + 2 + 19 + 1 + 13
    own = ("scheduled__", "manual__", "backfill__", "asset_triggered__", "operator_triggered__")
    assert not made.startswith(own)
    assert made == run_id(key, offset, at)


@given(st.tuples(KEYS, st.integers(0, 99)), st.tuples(KEYS, st.integers(0, 99)))
def test_two_requests_never_have_the_same_run_id(
    one: tuple[str, int], other: tuple[str, int]
) -> None:
    assert (run_id(*one, 0) == run_id(*other, 0)) == (one == other)


def test_the_escape_cannot_be_forged() -> None:
    keys = ["a/b", "a~2Fb", "a~b", "a~7Eb", "a", "a__1-0", "a__1", "ä", "x" * 80, "x" * 81]
    made = {run_id(key, offset, 0) for key in keys for offset in (1, 10)}
    assert len(made) == 2 * len(keys)


# Commands

COMMANDS = st.builds(
    Command,
    st.sampled_from(["k", "größe", "x/y"]),
    st.sampled_from([CommandState.ISSUED, CommandState.STARTED]),
    st.sampled_from(["a", "b"]),
    st.dictionaries(
        st.text(st.characters(codec="utf-8")), st.integers(-(2**53), 2**53) | st.booleans()
    ),
    st.just("anna"),
    st.integers(0, 9),
    st.just("request__k__1-0"),
)


@given(COMMANDS)
def test_a_command_reads_back_as_it_was_written(command: Command) -> None:
    assert decode(command.key.encode(), command.value(), NOW) == CommandEntry(
        command.key, command, NOW
    )


def test_a_command_is_the_contracts() -> None:
    assert json.loads(command({"x": 1}).value()) == {
        "State": "started",
        "Dag": "a",
        "Conf": {"x": 1},
        "RequestedBy": "anna",
        "RequestOffset": 3,
        "RunId": "request__k__3-0",
    }


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"\xff", b'{"State":"gone"}', b"[" * 9999])
def test_a_command_that_cannot_be_read_holds_its_key(value: bytes) -> None:
    entry = decode(b"k", value, NOW)
    assert entry is not None
    assert entry.command is not None
    assert entry.command.state is CommandState.UNREADABLE
    assert next_action(entry.command, None) is NextStep.KEEP


def test_a_tombstone_frees_its_key_and_no_other() -> None:
    other = CommandEntry("other", command(), NOW)
    assert fold([held(), other, CommandEntry("k", None, NOW)]) == {"other": other}
    assert fold([CommandEntry("k", None, NOW), held()]) == {"k": held()}


def test_the_next_action_for_a_command_depends_on_its_run_in_airflow() -> None:
    issued, started = command(state=CommandState.ISSUED), command()
    ended = AirflowRun("failed", NOW.replace(microsecond=1999))
    assert next_action(issued, None) is NextStep.START
    assert next_action(issued, AirflowRun("queued")) is NextStep.NOTE_STARTED
    assert next_action(started, AirflowRun("running")) is NextStep.KEEP
    deleted = next_action(started, None)
    assert isinstance(deleted, Release)
    assert (deleted.at, deleted.deleted) == (LONG_AGO, True)
    for one in (issued, started):
        assert next_action(one, ended) == Release(
            NOW.replace(microsecond=1000), "run request__k__3-0 ended: failed"
        )


# Statuses and decisions


def at_offset(offset: int, state: CommandState) -> CommandEntry:
    return CommandEntry("k", Command("k", state, "a", {}, "anna", offset, f"run-{offset}"), NOW)


issued, started = (
    partial(at_offset, state=state) for state in (CommandState.ISSUED, CommandState.STARTED)
)
FREE = CommandEntry("k", None, NOW)
REFUSED = Decision(b"k", Kind.REFUSED, "shardpost", NOW, "paused")


@pytest.mark.parametrize(
    ("entries", "decided", "kind", "settled", "run"),
    [
        ([], [], "already running", True, None),
        ([issued(5)], [], "won", False, "run-5"),
        ([started(5)], [], "won", True, "run-5"),
        ([issued(5), FREE], [], "won", True, "run-5"),
        ([issued(5), FREE], [REFUSED], "refused", True, "run-5"),
        ([started(2)], [], "already running", True, "run-2"),
        ([started(2), FREE], [], "already running", True, "run-2"),
        ([started(1), FREE, issued(2)], [], "already running", True, "run-2"),
        ([started(2), FREE, issued(6)], [], "already running", True, "run-2"),
    ],
)
def test_the_status_of_a_request_is_read_from_the_topics(
    entries: list[CommandEntry], decided: list[Decision], kind: str, settled: bool, run: str | None
) -> None:
    status = status_of(5, entries, decided, is_processed=True)
    assert isinstance(status, RequestStatus)
    run_id = status.command and status.command.run_id
    assert (status.kind, status.settled, run_id) == (kind, settled, run)


def test_a_request_that_is_not_processed_has_no_status_yet() -> None:
    assert status_of(5, [started(2)], [], is_processed=False) is None


def test_a_decision_reads_back_and_is_the_contracts() -> None:
    assert json.loads(REFUSED.value()) == {
        "Kind": "refused",
        "Who": "shardpost",
        "When": "2026-11-21T12:00:00Z",
        "Why": "paused",
    }
    assert decode_decision(b"k", REFUSED.value()) == REFUSED
    for value in (None, b"", b"{}", b"[]", b"\xff", b'{"Kind":"x"}', b"[" * 9999):
        assert decode_decision(b"k", value) is None


def test_a_key_is_released_of_the_run_that_was_shown(kafka: MemoryKafka) -> None:
    held_by = command({}, CommandState.STARTED)
    topic, partition = kafka.settings.topic("run-commands"), partition_of("k", 2)
    produce(installed(kafka.settings).kafka, Outgoing(topic, b"k", held_by.value(), [], partition))
    why = ("anna", "it hangs", NOW)
    with pytest.raises(ShardpostError, match="expected run another, found the newer run request__"):
        release(installed(kafka.settings), "k", *why, run_id="another")
    assert [entry.key for entry in commands_in_force(installed(kafka.settings).kafka)] == ["k"]
    assert release(installed(kafka.settings), "k", *why, run_id=held_by.run_id) == held_by
    assert commands_in_force(installed(kafka.settings).kafka) == []
