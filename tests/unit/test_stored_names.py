"""The names of letters, also of malformed ones and of those in a wrong partition."""

import logging
import pwd
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import example, given, strategies

from shardpost.commands.console import person
from shardpost.dead_letters import letters_table
from shardpost.dead_letters import sweep as sweep_job
from shardpost.dead_letters.letter_details import describe
from shardpost.dead_letters.model.letter_format import (
    Letter,
    LetterState,
    Malformed,
    keys_of,
    name_of,
)
from shardpost.dead_letters.model.letter_history import ListFilters, Step, newest_steps
from shardpost.dead_letters.model.letters import first_failure, parking_key
from shardpost.dead_letters.model.redrive_request import RedriveRequest
from shardpost.dead_letters.redrive import RedriveResult, carry_out_redrive
from shardpost.dead_letters.redrive_plan import plan_redrive, prepared
from shardpost.errors import harmless, one_line
from shardpost.kafka.records import Outgoing, Record, TopicPartition, partition_of
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.installed import installed
from tests.support.letter_world import (
    START,
    at,
    failed,
    header,
    live,
    milliseconds,
    original,
    produce,
    retries,
    seen,
    states,
    sweep,
    total,
)
from tests.support.memory_kafka import memory_kafka

AT_MS = milliseconds(START)
STORE, LOT = "dead-letters", "parking-lot"
HOME = partition_of(b"k", 2)  # of the letters of `original`
ELSEWHERE = 1 - HOME


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[Settings]:
    given = {"partitions": 2, "home": tmp_path, "retry_jitter": 0.0, "retry_batch": 1}
    with memory_kafka(lambda: AT_MS, **given) as kafka:
        apply_topics(installed(kafka.settings))
        yield kafka.settings


def junk(key: bytes, value: bytes | None, partition: int = 0) -> Outgoing:
    return Outgoing(STORE, key, value, [], partition)


def place(partition: int, offset: int) -> str:
    return f"{STORE}-{partition}-{offset}@{AT_MS}"


def parked(settings: Settings) -> dict[str, bytes | None]:
    found = live(settings, LOT)
    return {(key or b"").decode(): record.value for key, record in found.items()}


def decide(settings: Settings, name: str, *, is_redrive: bool) -> dict[str, str]:
    """Redrive or discard one letter by its name; return what is refused, and why."""
    now = datetime.now(UTC)
    request = RedriveRequest(
        ListFilters(ids=frozenset({name})),
        is_redrive,
        who="me",
        why="x",
        now=now,
        allow_repeated=True,
    )
    redrive = prepared(installed(settings), request)
    carry_out_redrive(redrive, result := RedriveResult())
    return result.refused | ({} if result.count else plan_redrive(redrive).refused)


def test_malformed_letters_under_one_key_are_all_parked(ready: Settings) -> None:
    payments = (b"first payment 100", b"second payment 200", b"third payment 300")
    places = (0, 0, 1)
    produce(ready, *(junk(b"acct-7", *one) for one in zip(payments, places, strict=True)))
    expected = dict(zip((place(0, 0), place(0, 1), place(1, 0)), payments, strict=True))
    assert states(ready) == dict.fromkeys(expected, "waiting")
    assert total(sweep(ready, START)) == {"parked": 3}
    assert parked(ready) == expected
    assert states(ready) == dict.fromkeys(expected, "parked")
    assert total(sweep(ready, START)) == {}
    assert live(ready, STORE) == {}
    assert header(live(ready, LOT)[place(0, 0).encode()], "stored-key") == "acct-7"


def test_one_of_them_is_shown_and_discarded_and_the_others_stay(ready: Settings) -> None:
    produce(ready, junk(b"acct-7", b"first"), junk(b"acct-7", b"second"))
    for name, value in ((place(0, 0), b"first"), (place(0, 1), b"second")):
        details = describe(installed(ready), name)
        assert (details.state, details.record and details.record.value) == ("waiting", value)
    sweep(ready, START)
    details = describe(installed(ready), place(0, 0))
    assert (details.state, details.record and details.record.value) == ("parked", b"first")
    assert [str(step.state) for step in details.life] == ["waiting", "parked"]
    refused = decide(ready, place(0, 0), is_redrive=True)
    reason = "malformed, it can only be discarded: expected a header letter-id, found none"
    assert refused == {place(0, 0): reason}
    assert decide(ready, place(0, 0), is_redrive=False) == {}
    assert states(ready) == {place(0, 0): "discarded", place(0, 1): "parked"}
    assert parked(ready) == {place(0, 1): b"second"}


def test_a_malformed_letter_under_the_key_of_one_that_waits_replaces_it_nowhere(
    ready: Settings,
) -> None:
    letter = failed(ready, original(0))
    produce(ready, letter, letter._replace(headers=[], value=b"other"))
    assert total(sweep(ready, START)) == {"waiting": 1, "parked": 1}
    assert total(sweep(ready, at(1))) == {"waiting": 1}
    assert total(sweep(ready, at(60))) == {"retried": 1}
    assert seen(ready) == {("positions-0-0", "1"): 1}
    assert parked(ready) == {place(HOME, 1): b"other"}
    assert states(ready) == {"positions-0-0": "retried", place(HOME, 1): "parked"}


def test_a_tombstone_by_hand_removes_malformed_letters_of_its_key(ready: Settings) -> None:
    produce(ready, junk(b"acct-7", b"first"), junk(b"acct-8", b"other"), junk(b"acct-7", None))
    produce(ready, junk(b"acct-7", b"after"))
    expected = {place(0, 0): "discarded", place(0, 1): "waiting", place(0, 3): "waiting"}
    assert states(ready) == expected
    assert [str(step.state) for step in describe(installed(ready), place(0, 0)).life] == [
        "waiting",
        "discarded",
    ]
    assert total(sweep(ready, START)) == {"parked": 2}
    assert parked(ready) == {place(0, 1): b"other", place(0, 3): b"after"}


def test_letters_of_one_id_in_two_partitions_are_parked_side_by_side(ready: Settings) -> None:
    strict = ready.model_copy(update={"retry_attempts": 0})
    here = failed(strict, original(0, value=b"value 0"))
    there = here._replace(value=b"value 1", partition=ELSEWHERE)
    produce(strict, here, there)
    named = f"positions-0-0~{ELSEWHERE}"
    assert states(strict) == {"positions-0-0": "waiting", named: "waiting"}
    reports = sweep(strict, START)
    assert total(reports) == {"parked": 2}
    assert [report.misplaced for report in reports] == [int(n == ELSEWHERE) for n in range(2)]
    assert parked(strict) == {"positions-0-0": b"value 0", named: b"value 1"}
    assert states(strict) == {"positions-0-0": "parked", named: "parked"}
    assert decide(strict, named, is_redrive=True) == {}
    [retry] = retries(strict)
    assert (header(retry, "letter-id"), retry.value) == ("positions-0-0", b"value 1")
    assert states(strict) == {"positions-0-0": "parked", named: "redriven"}
    details = describe(installed(strict), named)
    assert [one.value for one in details.retries] == [b"value 1"]
    assert [str(one.kind) for one in details.decisions] == ["redriven"]


def test_a_letter_that_is_elsewhere_is_retried_and_parked_and_has_one_life(ready: Settings) -> None:
    once = ready.model_copy(update={"retry_attempts": 1})
    named = f"positions-0-0~{ELSEWHERE}"
    produce(once, failed(once, original(0))._replace(partition=ELSEWHERE))
    assert total(sweep(once, at(60))) == {"retried": 1}
    assert states(once) == {named: "retried"}
    [retry] = retries(once)
    produce(once, failed(once, retry)._replace(partition=ELSEWHERE))
    assert total(sweep(once, at(60))) == {"parked": 1}
    assert states(once) == {named: "parked"}
    life = [(str(step.state), step.attempt) for step in describe(installed(once), named).life]
    assert life == [("waiting", 0), ("retried", 0), ("waiting", 1), ("parked", 1)]


@pytest.mark.parametrize(
    ("letter_id", "partition", "key"),
    [
        ("orders-0-5@77", HOME, "orders-0-5@77"),
        ("orders-0-5@77", ELSEWHERE, f"orders-0-5@77~{ELSEWHERE}"),
        ("opaque~1", HOME, f"opaque~1~{HOME}"),
        (f"{STORE}-0-5", HOME, f"{STORE}-0-5~{HOME}"),
        (f"{STORE}-0-5@77", HOME, f"{STORE}-0-5@77~{HOME}"),
        (f"{STORE}-0-5@", HOME, f"{STORE}-0-5@"),
    ],
)
def test_no_id_is_taken_for_another_name(letter_id: str, partition: int, key: str) -> None:
    letter: Letter = first_failure(original(0), "E: x", START)._replace(id=letter_id)
    record = Record(letter_id.encode(), b"v", [], AT_MS, STORE, partition, 9)
    assert parking_key(letter, record, 2) == key.encode()
    assert parking_key(Malformed("no id"), record, 2) == place(partition, 9).encode()


def test_a_letter_that_waited_when_the_store_was_given_more_partitions_is_listed_once() -> None:
    waiting = Step("x", LetterState.WAITING, 0, START, STORE, 1, 5)
    parked = Step("x~1", LetterState.PARKED, 0, START, LOT, 0, 0)
    assert newest_steps([waiting, parked], {}) == {"x~1": parked}
    other = replace(parked, id="x~0")
    assert set(newest_steps([waiting, other], {})) == {"x", "x~0"}


def test_letters_in_a_wrong_partition_are_named_once_a_sweep(
    ready: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def in_this_process(body: object, partitions: list[TopicPartition]) -> list[object]:
        assert callable(body)
        return [body(partition) for partition in partitions]

    monkeypatch.setattr(sweep_job, "_in_tasks", in_this_process)
    monkeypatch.setattr(letters_table, "catch_up", lambda *_: 0)
    produce(ready, *(failed(ready, original(n))._replace(partition=ELSEWHERE) for n in range(3)))
    produce(ready, failed(ready, original(9)))
    with caplog.at_level(logging.WARNING):
        code, _ = sweep_job.sweep_dead_letters(installed(ready), at(60))
    assert code == 0
    assert seen(ready).total() == 4
    [line] = [one for one in caplog.messages if "not in the partition" in one]
    assert line.startswith(f"{STORE}: 3 of these letters were not in the partition")
    caplog.clear()
    produce(ready, failed(ready, original(10)))
    sweep_job.sweep_dead_letters(installed(ready), at(60))
    assert "not in the partition" not in caplog.text


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (b"positions-0-17", "positions-0-17"),
        ("ümläut 1/..".encode(), "ümläut 1/.."),
        (b"\xff", "base64 /w=="),
        (b"a\nb", "base64 YQpi"),
        (b"\x1b[31m", "base64 G1szMW0="),
        (b"k" * 1000, "k" * 1000),
        (b"k" * 1001, "sha256 " + sha256(b"k" * 1001).hexdigest()),
        (b"", "sha256 " + sha256(b"").hexdigest()),
        (None, "sha256 " + sha256(b"").hexdigest()),
    ],
)
def test_a_key_is_called_by_what_a_person_can_read_and_type(key: bytes | None, name: str) -> None:
    assert name_of(key) == name


@given(strategies.binary(max_size=1100))
@example(b"base64 ")
@example("base64 ü".encode())
def test_a_name_names_itself_and_is_found_by_its_key(key: bytes) -> None:
    name = name_of(key)
    assert name_of(name.encode()) == name
    assert harmless(name) == name
    if 0 < len(key) <= 1000:
        assert key in keys_of(name)


def test_what_could_steer_a_terminal_is_replaced_and_lines_stay() -> None:
    text = "a\x1b[31m\x9b\x07\r\u202eb\n\tc ü\u00a0"
    assert harmless(text) == "a\ufffd[31m\ufffd\ufffd\ufffd\ufffdb\n\tc ü\u00a0"
    assert one_line("a\nb") == "a\ufffdb"


def test_who_has_no_name_is_recorded_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert person().startswith("uid ")
