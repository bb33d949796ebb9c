"""The table of letters, and their commands, where topics are recreated; Kafka in memory."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from shardpost.commands.parked_letters import AGAIN_IN_VAIN
from shardpost.dead_letters import letter_index, letter_rows, letter_topics, listed_letters
from shardpost.dead_letters.letter_details import describe
from shardpost.dead_letters.letter_topics import current_progress
from shardpost.dead_letters.letters_table import as_rows, life, open_table
from shardpost.dead_letters.listed_letters import current_letters
from shardpost.dead_letters.model.letter_format import DEAD_LETTERS, LetterState
from shardpost.dead_letters.model.letter_history import ListFilters, Step
from shardpost.delta import query
from shardpost.delta.storage import path_of
from shardpost.kafka.records import Outgoing, Record, TopicPartition
from shardpost.settings import Settings
from shardpost.topics import guards
from shardpost.topics.creation import apply_topics
from shardpost.watch.sources import collect_letters
from tests.support import decisions
from tests.support.command_line import CommandLine, CommandLineHere
from tests.support.installed import installed
from tests.support.letter_world import (
    START,
    append,
    at,
    decide,
    failed,
    live,
    milliseconds,
    original,
    produce,
    states,
    sweep,
)
from tests.support.memory_kafka import MemoryKafka, memory_kafka

STORE, LOT = "dead-letters", "parking-lot"
NEVER = START + timedelta(days=36_500)
PARKING = {"retry_attempts": 0}


@dataclass
class Letters:
    """Letters as they are put, swept and appended to the table."""

    kafka: MemoryKafka

    @property
    def settings(self) -> Settings:
        return self.kafka.settings

    def fail(self, *offsets: int, seconds: int = 0) -> None:
        """Report failures of records that were written at that time; so are their ids."""
        self.put(*(failed(self.settings, recorded(n, seconds)) for n in offsets))

    def put(self, *records: Outgoing) -> None:
        produce(self.settings, *records)

    def park(self) -> None:
        sweep(self.settings.model_copy(update=PARKING), START)

    def append(self) -> int:
        return append(self.settings)

    def recreate(self, *topics: str) -> None:
        for topic in topics:
            self.kafka.broker.delete_topic(topic)
        apply_topics(installed(self.settings))

    def states(self) -> dict[str, str]:
        """Return the state of each letter; the same from table and topics, and from the table."""
        found = states(self.settings)
        assert current_progress(installed(self.settings)).unread == []
        every = current_letters(installed(self.settings))
        is_open = {name: step for name, step in every.items() if step.is_in_topic}
        assert current_letters(installed(self.settings), closed_since=NEVER) == is_open
        return found

    def rows(self) -> list[dict[str, Any]]:
        sql = 'SELECT id, state, "offset", generation FROM dead_letters ORDER BY at, id, state DESC'
        return query.rows(installed(self.settings).tables, sql, {DEAD_LETTERS: None})


def recorded(offset: int, seconds: int) -> Record:
    return original(offset, b"k%d" % offset)._replace(timestamp=milliseconds(at(seconds)))


def name(offset: int, seconds: int = 0) -> str:
    return f"positions-0-{offset}@{milliseconds(at(seconds))}"


@pytest.fixture
def letters(tmp_path: Path) -> Iterator[Letters]:
    given = {"partitions": 2, "home": tmp_path, "retry_jitter": 0.0, "kafka_timeout": 1}
    with memory_kafka(lambda: milliseconds(START), **given) as kafka:
        apply_topics(installed(kafka.settings))
        yield Letters(kafka)


def test_recreated_topics_are_read_from_their_beginning(letters: Letters) -> None:
    letters.fail(*range(12))
    letters.park()
    assert letters.states() == {name(n): "parked" for n in range(12)}
    letters.recreate(STORE, LOT)
    letters.fail(0, 1, 2, seconds=9)
    letters.park()
    letters.fail(7, seconds=9)
    expected = {name(n, 9): "parked" for n in range(3)} | {name(7, 9): "waiting"}
    assert letters.states() == expected
    assert letters.append() == 0
    letters.fail(8, seconds=9)
    assert letters.states() == expected | {name(8, 9): "waiting"}
    assert describe(installed(letters.settings), name(0, 9)).state == "parked"


def test_what_was_in_the_old_topic_keeps_its_history_and_is_lost(letters: Letters) -> None:
    letters.fail(0)
    letters.park()
    letters.fail(1)
    letters.append()
    letters.recreate(STORE, LOT)
    for letter_id, state in ((name(0), "parked"), (name(1), "waiting")):
        details = describe(installed(letters.settings), letter_id)
        assert (details.state, details.record) == ("lost", None)
        assert str(life(installed(letters.settings), letter_id)[-1].state) == state
    assert letters.states() == {}
    assert [row["generation"] for row in letters.rows()] == [0, 0, 0]


def test_a_letter_that_comes_again_after_that_is_in_its_new_state(letters: Letters) -> None:
    letters.fail(0, 1)
    letters.park()
    decide(letters.settings, is_redrive=False)
    letters.append()
    letters.recreate(STORE, LOT)
    letters.fail(0)
    assert letters.states() == {name(0): "waiting", name(1): "discarded"}
    letters.park()
    assert letters.states() == {name(0): "parked", name(1): "discarded"}
    assert len(life(installed(letters.settings), name(0))) == 5
    letters.recreate(STORE, LOT)
    assert letters.states() == {name(1): "discarded"}


def test_where_only_the_parking_lot_was_recreated_what_was_parked_does_not_wait(
    letters: Letters,
) -> None:
    letters.fail(0)
    letters.park()
    letters.fail(1)
    letters.append()
    letters.recreate(LOT)
    assert letters.states() == {name(1): "waiting"}
    letters.park()
    assert letters.states() == {name(1): "parked"}


def test_where_only_the_store_was_recreated_what_is_parked_stays(letters: Letters) -> None:
    letters.fail(0)
    letters.park()
    letters.fail(1)
    letters.append()
    letters.recreate(STORE)
    assert letters.states() == {name(0): "parked"}
    letters.fail(2)
    assert letters.states() == {name(0): "parked", name(2): "waiting"}


def test_a_topic_that_ends_before_what_was_read_is_read_again(letters: Letters) -> None:
    letters.fail(*range(4))
    letters.append()
    for number in range(2):
        log = letters.kafka.broker.log(TopicPartition(STORE, number))
        log.entries[:] = [one for one in log.entries if one.offset < 1]
        log.end = min(log.end, 1)
    alive = set(letters.states())
    assert 0 < len(alive) < 4
    letters.fail(9)
    assert set(letters.states()) == alive | {name(9)}


def test_what_is_parked_after_a_tombstone_by_hand_of_its_foreign_key_is_parked(
    letters: Letters,
) -> None:
    letters.put(Outgoing(STORE, b"7", None, []), Outgoing(STORE, b"7", b"malformed", []))
    letters.append()
    letters.park()
    assert [*letters.states().values()] == ["parked"]


def test_a_table_that_is_up_to_date_gets_no_version(letters: Letters) -> None:
    letters.fail(0)
    letters.append()
    version = open_table(installed(letters.settings).tables).version()
    assert letters.append() == 0
    assert open_table(installed(letters.settings).tables).version() == version


def test_the_list_is_refused_while_a_store_is_not_what_it_was(
    letters: Letters,
) -> None:
    shardpost = CommandLineHere(letters.settings.environ())
    letters.fail(0)
    assert listed(shardpost) == [name(0)]
    known = letters.settings.home / "stores" / f"{STORE}.json"
    assert not known.exists()  # the list only looks
    guards.require_stores(installed(letters.settings), "dead-letters", "parking-lot")
    letters.recreate(STORE)
    letters.fail(1, 2)
    refused = shardpost.refused("letters", "list", "--json", code=1)
    assert "it was deleted and created again" in refused
    assert f"remove {known}" in refused
    known.unlink()
    assert listed(shardpost) == [name(1), name(2)]


def listed(shardpost: CommandLine) -> list[str]:
    return sorted(one["letter_id"] for one in shardpost.json("letters", "list"))


AT = datetime(2026, 11, 23, tzinfo=UTC)
LETTER = Step("a-0-1", LetterState.PARKED, 1, AT, "parking-lot", 0, 0, "a", fingerprint="f00")


@pytest.mark.parametrize(
    ("letters", "arguments", "said"),
    [
        ([], ("--error", "nope"), "no letters\n"),
        ([LETTER], ("--error", "nope"), "no letter has the error nope; "),
        ([LETTER], ("--error", "f00", "--state", "waiting"), "none of 1 letter matches; "),
        ([LETTER], ("--origin", "b"), "none of 1 letter matches; "),
        ([LETTER], ("--error", "f00"), "state   origin  error"),
    ],
)
def test_that_nothing_is_listed_is_said_with_its_reason(
    shardpost: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    letters: list[Step],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    index = letter_index.LetterIndex(letter_rows.folded(letters, {}))
    monkeypatch.setattr(letter_index, "open_index", lambda *_: index)
    monkeypatch.setattr(guards, "inspect_stores", lambda *_: None)
    monkeypatch.setattr(letter_topics, "not_visible", lambda _: [])
    assert shardpost("letters", "list", *arguments).startswith(said)


KAFKA = {"partitions": 1}
ORIGIN: list[tuple[str, str | bytes | None]] = [
    ("origin-topic", b"positions"),
    ("origin-partition", b"0"),
    ("origin-offset", b"0"),
]


def park(kafka: MemoryKafka, letter_id: str, times: int) -> None:
    """Put a letter into the parking lot that one error has parked so often."""
    counted: list[tuple[str, str | bytes | None]] = [
        ("parked-error", b"ValueError-0"),
        ("parked-count", str(times).encode()),
    ]
    headers = [*ORIGIN, *counted, ("letter-id", letter_id.encode()), ("attempt", b"1")]
    headers += [("origin-key", b"k"), ("error", b"ValueError: x")]
    headers.append(("failed-at", b"2026-11-21T12:00:00Z"))
    installed(kafka.settings).kafka.producer().produce(
        "parking-lot", b"v", letter_id.encode(), 0, headers=headers
    )


@pytest.mark.parametrize(("times", "said"), [(1, f"{AGAIN_IN_VAIN}\n"), (2, "")])
def test_again_says_so_where_it_changes_nothing(
    kafka: MemoryKafka, shardpost: CommandLine, times: int, said: str
) -> None:
    park(kafka, "one", times)
    if times > 1:
        refused = "parked 2 times by the same error: fix its cause first, or add --again"
        assert refused in shardpost("letters", "redrive", code=3)
    code, out, err = shardpost.answer("letters", "redrive", "--again")
    assert (code, err, "1 would be redriven" in out) == (0, said, True)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            '{"Client":"c","Ticker":"T","Amount":"1,5","Exchange":"X"}',
            "--value: the next compaction would reject it again: expected a number for Amount,"
            ' found "1,5"\n',
        ),
        ('{"Client":"c","Ticker":"T","Amount":1,"Exchange":"X"}', ""),
    ],
)
def test_a_new_value_is_checked_by_the_plan_and_by_what_carries_it_out(
    kafka: MemoryKafka, shardpost: CommandLine, value: str, said: str
) -> None:
    park(kafka, "one", 1)
    asked = ("letters", "redrive", "--id", "one", "--value", value)
    assert shardpost.answer(*asked)[2] == said
    code, _, err = shardpost.answer(*asked, "--apply", "--why", "x")
    assert (code, said.strip() in err, "add --again" in err) == (2 if said else 0, True, bool(said))
    if said:
        assert shardpost.answer(*asked, "--apply", "--again", "--why", "x")[::2] == (0, said)
        assert "not parked: edited " in shardpost("letters", "redrive", "--id", "one", code=3)


def test_a_letter_that_was_redriven_is_refused_with_when_and_by_whom(
    kafka: MemoryKafka, shardpost: CommandLine
) -> None:
    park(kafka, "one", 1)
    asked = ("letters", "redrive", "--id", "one", "--id", "nobody")
    shardpost(*asked, "--apply", "--why", "mended", "--by", "anna", code=3)
    said = shardpost(*asked, code=3)
    assert re.search(r"refused: one: not parked: redriven 2.* UTC by anna \(mended\)\n", said)
    assert "refused: 'nobody': no letter has this id; `shardpost letters list`" in said


def test_an_origin_without_topic_or_letter_is_refused_with_those_of_parked_letters(
    kafka: MemoryKafka, shardpost: CommandLine
) -> None:
    park(kafka, "one", 1)
    said = shardpost.refused("letters", "redrive", "--origin", "position", code=2)
    assert "origin position: no topic has this name: did you mean positions? Letters of" in said
    assert "0 would be discarded" in shardpost("letters", "discard", "--origin", "clients")


@pytest.mark.parametrize("doing", ["redrive", "discard"])
def test_who_decided_is_recorded(doing: str, kafka: MemoryKafka, shardpost: CommandLine) -> None:
    park(kafka, "one", 1)
    shardpost("letters", doing, "--apply", "--why", "x", "--by", " ", code=2)
    out = shardpost("letters", doing, "--apply", "--why", "mended", "--by", "anna")
    assert out.splitlines()[-1][0] == "1"
    [(decision, _)] = decisions.list_all(kafka.settings)
    assert (decision.who, decision.why) == ("anna", "mended")


def lot_keys(kafka: MemoryKafka) -> set[str]:
    return {(key or b"").decode() for key in live(kafka.settings, LOT)}


@pytest.mark.parametrize("given", ["--id", "--origin", "--error", "--since", "--until", "--up-to"])
@pytest.mark.parametrize("doing", ["redrive", "discard"])
def test_a_filter_that_is_given_and_empty_is_bad_usage(
    doing: str, given: str, kafka: MemoryKafka, shardpost: CommandLine
) -> None:
    park(kafka, "one", 1)
    shardpost("letters", doing, given, "", "--apply", "--why", "x", code=2)
    assert lot_keys(kafka) == {"one"}


@pytest.mark.parametrize("given", ["--origin", "--error", "--since", "--until"])
def test_letters_are_not_listed_by_an_empty_filter(
    given: str, kafka: MemoryKafka, shardpost: CommandLine
) -> None:
    park(kafka, "one", 1)
    shardpost("letters", "list", given, "", code=2)


def test_what_is_parked_after_a_plan_is_left_alone(
    kafka: MemoryKafka, shardpost: CommandLine
) -> None:
    park(kafka, "one", 1)
    planned = shardpost("letters", "discard").splitlines()[-1]
    shown = planned.rpartition(" ")[2]
    assert planned == f"1 would be discarded; to apply exactly this, add --apply --up-to {shown}"
    assert shardpost.json("letters", "discard")["up_to"] == shown
    for n in range(5):
        park(kafka, f"later{n}", 1)
    apply = ("--up-to", shown, "--apply", "--why", "lost")
    said = shardpost("letters", "discard", *apply).splitlines()
    assert said[-2:] == [
        "1 discarded",
        "not changed: 5 more, which were not in the plan",
    ]
    assert lot_keys(kafka) == {f"later{n}" for n in range(5)}
    assert shardpost.json("letters", "discard", *apply)["done"] == 0
    later = shardpost.json("letters", "discard", "--id", "later0", *apply, code=3)
    assert (later["done"], later["refused"]) == (0, 1)


def test_a_letter_that_is_parked_again_after_a_plan_is_left_alone(
    kafka: MemoryKafka, shardpost: CommandLine
) -> None:
    park(kafka, "one", 1)
    shown = shardpost.json("letters", "discard", "--id", "one")["up_to"]
    park(kafka, "one", 2)
    apply = ("--up-to", shown, "--apply", "--why", "lost")
    assert shardpost.json("letters", "discard", *apply)["done"] == 0
    assert lot_keys(kafka) == {"one"}


def test_what_is_left_of_a_canary_are_its_letters(
    kafka: MemoryKafka, shardpost: CommandLine
) -> None:
    for n in range(5):
        park(kafka, f"l{n}", 1)
    shown = shardpost.json("letters", "discard", "--canary", "3")["up_to"]
    shardpost("letters", "discard", "--id", "l0", "--apply", "--why", "stopped after it")
    again = shardpost.json("letters", "discard", "--canary", "3", "--up-to", shown)
    assert (again["letters"], again["up_to"]) == (2, shown)
    apply = ("--up-to", shown, "--apply", "--why", "the rest")
    assert shardpost.json("letters", "discard", "--canary", "3", *apply)["done"] == 2
    assert lot_keys(kafka) == {"l3", "l4"}


def test_a_plan_is_of_one_parking_lot(kafka: MemoryKafka, shardpost: CommandLine) -> None:
    park(kafka, "one", 1)
    shown = shardpost.json("letters", "discard")["up_to"]
    kafka.broker.delete_topic(LOT)
    apply_topics(installed(kafka.settings))
    (kafka.settings.home / "stores" / f"{LOT}.json").unlink()  # accepted as it is now
    park(kafka, "other", 1)
    said = shardpost.refused("letters", "discard", "--up-to", shown, code=2)
    assert "make a new plan" in said
    for text in ("x:0", "x:0=a", "x:0=1,", "x:0=1=2"):
        said = shardpost.refused("letters", "discard", "--up-to", text, code=2)
        assert "expected the value that a plan printed" in said


@pytest.mark.parametrize("has_table", [True, False])
def test_when_a_letter_is_due_follows_from_the_settings_of_now(
    letters: Letters, has_table: bool
) -> None:
    letters.put(*(failed(letters.settings, recorded(n, 0)) for n in range(50)))
    if has_table:
        letters.append()
    put_at = min(step.at for step in current_letters(installed(letters.settings)).values())
    for first, jitter, seconds in ((60, 0, 60), (36_000, 0, 36_000), (60, 0.5, 75), (5, 0.9, 6)):
        changed = {"retry_first_delay": first, "retry_jitter": jitter}
        settings = letters.settings.model_copy(update=changed)
        now = put_at + timedelta(seconds=seconds)
        steps = current_letters(installed(settings))
        outcomes = {name: step.due is not None and step.due <= now for name, step in steps.items()}
        index = letter_index.open_index(installed(settings), letter_index.KeptIndex())
        found = listed_letters.listed(installed(settings), index, ListFilters(), now)
        assert {step.id: step.due for step in found.page(0, 99)} == {
            name: step.due for name, step in steps.items()
        }
        assert found.due(now) == sum(outcomes.values())
        assert found.due(put_at + timedelta(seconds=first * (1 + jitter) + 1)) == 50
        assert found.due(put_at + timedelta(seconds=first - 1)) == 0


def test_an_overdue_letter_is_one_by_the_settings_of_now(letters: Letters) -> None:
    letters.fail(1)
    letters.append()
    [step] = current_letters(installed(letters.settings)).values()
    for first, names in ((60, ["letters-overdue"]), (36_000, [])):
        settings = letters.settings.model_copy(update={"retry_first_delay": first})
        found = collect_letters(installed(settings), step.at + timedelta(hours=2))
        assert [condition.rule for condition in found.conditions] == names


def test_the_errors_of_many_letters_are_read_as_those_of_few(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters.fail(0, 1, 2)
    letters.append()
    few = current_letters(installed(letters.settings))
    monkeypatch.setattr(letter_index, "FEW", 1)
    assert current_letters(installed(letters.settings)) == few
    assert {step.error for step in few.values()} == {"ValueError: bad"}


def test_the_names_that_depend_on_others_may_be_many(letters: Letters) -> None:
    """Of 20,000 names in the text of a query its parser overflowed the stack."""
    tables, count = installed(letters.settings).tables, 20_000
    key = name(1)
    steps = [
        Step(f"{key}{n}~1", LetterState.WAITING, 0, START, STORE, 1, n, key=f"{key}{n}")
        for n in range(count)
    ]
    by_hand = replace(steps[0], id=f"{key}0", state=LetterState.DISCARDED, attempt=None, key=None)
    steps.append(replace(by_hand, offset=count))
    version = open_table(tables).version() + 1
    write_deltalake(path_of(tables, DEAD_LETTERS), as_rows(steps), mode="append")
    found = letter_rows.letters_of(installed(letters.settings), version, {STORE: 0, LOT: 0})
    states_there = dict(zip(*(found[of].to_pylist() for of in ("id", "state")), strict=True))
    assert len(states_there) == count
    assert states_there[steps[0].id] == "discarded"
    assert states_there[steps[1].id] == "waiting"
