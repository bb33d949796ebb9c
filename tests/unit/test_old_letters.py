"""The table of letters forgets those that were dealt with long ago, and nothing else."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from shardpost import projection
from shardpost.dead_letters import letters_table, removal
from shardpost.dead_letters.letters_table import life
from shardpost.dead_letters.listed_letters import current_letters
from shardpost.dead_letters.model.letter_format import DEAD_LETTERS, LetterState
from shardpost.dead_letters.model.letter_history import Step, step_of
from shardpost.dead_letters.removal import may_be_forgotten, remove_old
from shardpost.delta import query, rewritten_files
from shardpost.errors import ShardpostError
from shardpost.kafka.records import Outgoing, Record, TopicPartition
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.topics.guards import require_stores
from shardpost.values.topic_names import TopicName
from tests.support.at_step import Killed, at_step
from tests.support.how_far import drawn, up_to
from tests.support.installed import installed
from tests.support.letter_world import (
    START,
    append,
    decide,
    failed,
    live,
    milliseconds,
    original,
    produce,
    retries,
    sweep,
)
from tests.support.memory_kafka import MemoryKafka, memory_kafka

STORE: TopicName = "dead-letters"
LOT: TopicName = "parking-lot"
DAYS = 7
KEYS = (b"a", b"b", b"c")


@dataclass
class World:
    """Letters, sweeps and a clock; two tables of the letters, of which `pruned` forgets."""

    kafka: MemoryKafka
    home: Path
    now: list[datetime]
    removed: int = 0
    forgotten: set[str] = field(default_factory=set)

    @property
    def pruned(self) -> Settings:
        return self.kafka.settings.model_copy(update={"home": self.home / "pruned"})

    @property
    def whole(self) -> Settings:
        return self.kafka.settings.model_copy(update={"home": self.home / "whole"})

    def put(self, *records: Outgoing) -> None:
        produce(self.pruned, *records)

    def fail(self, number: int) -> None:
        record = original(number, KEYS[number % len(KEYS)])
        self.put(failed(self.pruned, record, when=self.now[0]))

    def fail_again(self, retry: Record | None) -> None:
        if retry is not None:
            self.put(failed(self.pruned, retry, "ValueError: again", self.now[0]))

    def sweep(self) -> None:
        sweep(self.pruned, self.now[0])
        self.append()

    def append(self) -> None:
        for settings in (self.pruned, self.whole):
            append(settings)

    def wait(self, **time: float) -> None:
        self.now[0] += timedelta(**time)

    def clean(self) -> None:
        """Let Kafka's log cleaner come, for so long that it drops tombstones.

        By then projections are too old.
        """
        self.append()
        for settings in (self.pruned, self.whole):
            shutil.rmtree(settings.home / projection.FOLDER, ignore_errors=True)
        for topic in (STORE, LOT):
            for number in range(2):
                log = self.kafka.broker.log(TopicPartition(topic, number))
                log.compact(drop_tombstones=True)

    def prune(self) -> removal.OldLetters:
        done = remove_old(installed(self.pruned), self.now[0])
        self.removed += done.letters
        self.note_forgotten()
        return done

    def note_forgotten(self) -> None:
        """Note who is gone: one that comes again when Kafka has forgotten it is a new one."""
        self.forgotten |= (
            current_letters(installed(self.whole)).keys()
            - current_letters(installed(self.pruned)).keys()
        )

    def open(self, settings: Settings) -> dict[str, Step]:
        never = self.now[0] + timedelta(days=36_500)
        return current_letters(installed(settings), closed_since=never)

    def check(self) -> None:
        """All that is open is listed; what is missing is closed, old, and gone from Kafka."""
        in_kafka = {
            step.id
            for topic, count in ((STORE, 2), (LOT, None))
            for record in live(self.pruned, topic).values()
            if (step := step_of(record, store_partitions=count))
        }
        pruned, whole = (current_letters(installed(one)) for one in (self.pruned, self.whole))
        gone = whole.keys() - pruned.keys()
        assert all(whole[name].at < self.now[0] - timedelta(days=DAYS) for name in gone)
        assert not gone & in_kafka
        self.note_forgotten()
        known = whole.keys() - self.forgotten
        assert {name: pruned[name] for name in known} == {name: whole[name] for name in known}
        is_open = {name: step for name, step in pruned.items() if step.is_in_topic}
        assert is_open.keys() - known <= in_kafka
        assert self.open(self.pruned) == is_open  # which is read by itself

    def rows(self, settings: Settings) -> set[tuple[object, ...]]:
        sql = 'SELECT id, state, topic, "partition", "offset" FROM dead_letters'
        found = query.rows(installed(settings).tables, sql, {DEAD_LETTERS: None})
        assert len(found) == len({tuple(row.values()) for row in found})
        return {tuple(row.values()) for row in found}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    now = [START]
    given: dict[str, Any] = {"partitions": 2, "kafka_timeout": 1, "home": tmp_path}
    given |= {"retry_jitter": 0.0, "retry_attempts": 2, "letter_days": DAYS}
    with memory_kafka(lambda: milliseconds(now[0]), **given) as kafka:
        apply_topics(installed(kafka.settings))
        yield World(kafka, tmp_path, now)


@pytest.fixture
def aged(world: World) -> World:
    """Give a world with letters that were dealt with long ago, and others in the same files."""
    for number in range(3):
        world.fail(number)
    world.put(Outgoing(STORE, b"7", b"malformed", []))
    world.append()
    world.wait(hours=1)
    world.sweep()
    world.fail(90)
    world.sweep()  # the last record of each partition is never cleaned
    world.clean()
    world.wait(days=30)
    world.fail(91)
    world.append()
    return world


@pytest.mark.parametrize("seed", drawn(range(8)))
def test_whatever_happens_the_same_letters_are_open(world: World, seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - the same each time
    actions: list[Callable[[], object]] = [
        lambda: world.fail(draw.randrange(8)),
        lambda: world.fail(draw.randrange(8)),
        lambda: [*map(world.fail_again, draw.choices([*retries(world.pruned), None]))],
        lambda: world.put(Outgoing(STORE, draw.choice((b"7", b"8")), b"malformed", [])),
        lambda: world.put(Outgoing(draw.choice((STORE, LOT)), draw.choice(names()), None, [])),
        lambda: world.wait(hours=draw.randrange(1, 48)),
        lambda: world.wait(days=draw.randrange(1, 12)),
        world.sweep,
        world.sweep,
        world.clean,
        lambda: decide(world.pruned, is_redrive=draw.random() < 0.5),
        world.prune,
        world.prune,
    ]

    def names() -> list[bytes]:
        return [b"7", *(f"positions-0-{number}".encode() for number in range(8))]

    world.fail(90)
    world.wait(hours=1)
    world.sweep()
    world.fail(93)  # the last record of a partition is never cleaned
    for number in range(up_to(60, quick=20)):
        draw.choice(actions)()
        if number % 3 == 0:
            world.check()
    for last in (98, 99):  # what waited until the first end is dealt with long before the second
        world.clean()
        world.wait(days=DAYS + 1)
        world.fail(last)
        world.sweep()
        world.prune()
        world.check()
    assert world.removed > 0


@pytest.mark.parametrize("year", [1, 9999])
def test_letters_are_listed_since_any_time(aged: World, year: int) -> None:
    since = START.replace(year=year)
    found = current_letters(installed(aged.pruned), closed_since=since)
    assert len(found) == (6 if year == 1 else 3)


def test_a_letter_that_is_open_is_never_one_that_may_go() -> None:
    waiting = Step("a", LetterState.WAITING, 1, START, STORE, 0, 5)
    retried = Step("a", LetterState.RETRIED, 0, START, STORE, 0, 3)
    assert may_be_forgotten({"a", "b"}, [waiting, retried], {}) == {"b"}


def test_a_later_name_stays_as_long_as_the_letter_that_it_closes() -> None:
    waiting = Step("a", LetterState.WAITING, 0, START, STORE, 0, 5)
    parked = Step("a~0", LetterState.DISCARDED, 0, START, LOT, 0, 5)
    assert may_be_forgotten({"a~0"}, [waiting, parked], {}) == set()
    assert may_be_forgotten({"a", "a~0"}, [waiting, parked], {}) == {"a", "a~0"}


def test_what_was_dealt_with_goes_and_what_is_open_stays(aged: World) -> None:
    before = aged.rows(aged.pruned)
    done = aged.prune()
    assert (done.letters, done.rows, done.postponed) == (3, 6, {})
    assert len(before) - len(aged.rows(aged.pruned)) == 6
    states = {
        name: str(step.state) for name, step in current_letters(installed(aged.pruned)).items()
    }
    assert sorted(states.values()) == ["parked", "waiting", "waiting"]
    assert life(installed(aged.pruned), "positions-0-0") == []
    aged.check()
    assert aged.prune().rows == 0


def test_a_dry_run_says_what_would_go_and_changes_nothing(aged: World) -> None:
    before = aged.rows(aged.pruned)
    done = remove_old(installed(aged.pruned), aged.now[0], dry_run=True)
    assert done.lines() == ["dead_letters: 3 resolved letters would be removed: 6 rows of 2 files"]
    assert aged.rows(aged.pruned) == before


def test_what_kafka_has_a_tombstone_of_stays_however_old(world: World) -> None:
    world.fail(0)
    world.wait(hours=1)
    world.sweep()
    world.wait(days=30)
    world.fail(1)
    world.append()
    assert world.prune().letters == 0
    world.fail(0)  # reported again: dropped, by the tombstone
    world.sweep()
    world.check()
    assert str(current_letters(installed(world.pruned))["positions-0-0"].state) == "retried"


def test_a_letter_that_comes_again_after_that_is_a_new_one(aged: World) -> None:
    aged.prune()
    aged.fail(0)
    assert str(aged.open(aged.pruned)["positions-0-0"].state) == "waiting"
    aged.wait(hours=1)
    aged.sweep()
    aged.check()
    assert len(life(installed(aged.pruned), "positions-0-0")) == 2


def test_what_kafka_has_only_a_report_of_that_was_dropped_stays(world: World) -> None:
    letter = failed(world.pruned, original(0, KEYS[0]), when=world.now[0])
    misplaced = letter._replace(partition=1 - (letter.partition or 0))
    for _ in range(2):
        world.put(misplaced)
        world.wait(hours=1)
        world.sweep()
    for number in range(2):
        world.kafka.broker.log(TopicPartition(STORE, number)).compact()
    world.wait(days=30)
    world.fail(1)
    world.append()
    assert world.prune().letters == 0
    world.put(misplaced)
    world.sweep()
    world.check()
    [name] = {row[0] for row in world.rows(world.pruned)} - {"positions-0-1"}
    assert str(current_letters(installed(world.pruned))[str(name)].state) == "retried"


def test_a_tombstone_by_hand_stays_as_long_as_a_letter_that_it_closed(world: World) -> None:
    world.fail(0)
    world.wait(hours=1)
    world.sweep()
    [retry] = retries(world.pruned)
    world.fail_again(retry)
    world.fail(12)  # in the same partition, as all here: this one is old, and goes
    world.wait(minutes=1.5)
    world.sweep()
    name = "positions-0-0"
    partition = world.open(world.pruned)[name].partition
    world.put(Outgoing(STORE, name.encode(), None, [], partition))
    world.fail(3)  # the last record of a partition is never cleaned
    world.clean()
    world.wait(days=30)
    world.fail(0)
    world.wait(hours=1)
    world.sweep()
    world.fail(6)
    world.clean()
    assert world.prune().letters == 1
    assert name not in world.open(world.pruned)
    world.check()
    world.wait(days=30)
    world.fail(9)
    world.sweep()
    world.prune()
    assert life(installed(world.pruned), name) == []
    assert not any(row[0] == name for row in world.rows(world.pruned))


def test_one_that_is_parked_again_after_it_was_discarded_is_open(world: World) -> None:
    parking = world.pruned.model_copy(update={"retry_attempts": 0})
    for _ in range(2):
        world.fail(0)
        sweep(parking, world.now[0])
        decide(world.pruned, is_redrive=False)
        world.fail(3)
        sweep(parking, world.now[0])
        world.clean()
    world.fail(0)
    sweep(parking, world.now[0])
    world.append()
    assert {*world.open(world.pruned)} == {"positions-0-0", "positions-0-3"}
    world.check()


def test_a_clock_that_is_ahead_makes_no_letter_old(world: World) -> None:
    world.fail(0)
    world.wait(hours=1)
    world.sweep()
    world.put(Outgoing(STORE, b"7", b"malformed", []))
    world.sweep()
    world.clean()
    world.wait(days=1000)
    assert world.prune().letters == 0


def test_steps_by_a_clock_that_is_a_year_ahead_make_no_letter_old(aged: World) -> None:
    at = aged.pruned.model_copy(update={"letter_days": 365})
    aged.wait(days=366)
    aged.fail(92)
    aged.append()
    assert remove_old(installed(at), aged.now[0] + timedelta(hours=1)).letters == 0
    aged.wait(days=-366)
    assert remove_old(installed(at), aged.now[0]).letters == 0
    for _ in range(12):  # by a clock that is right
        aged.wait(days=30)
        aged.fail(93)
        aged.append()
    assert remove_old(installed(at), aged.now[0]).letters == 3


def test_a_store_that_was_emptied_makes_no_letter_old(aged: World) -> None:
    require_stores(installed(aged.pruned), STORE, LOT)
    aged.kafka.broker.delete_topic(STORE)
    apply_topics(installed(aged.pruned))
    before = aged.rows(aged.pruned)
    with pytest.raises(ShardpostError, match="it was deleted and created again"):
        aged.prune()
    assert aged.rows(aged.pruned) == before


def test_killed_between_two_steps_it_has_removed_whole_letters_or_none(
    aged: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(aged.rows(aged.pruned))
    found = []
    for at in range(1, 10):
        left = itertools.count(1)

        def killed(_: str, at: int = at, left: Iterator[int] = left) -> None:
            if next(left) == at:
                raise Killed

        monkeypatch.setattr(rewritten_files, "step", killed)
        with suppress(Killed):
            aged.prune()
        found.append(len(aged.rows(aged.pruned)))
        aged.check()
        if found[-1] < before:
            break
    # Before the files are written, and before the commit: nothing; after it, all.
    assert found == [before, before, before - 6]


def test_beside_a_sweep_that_is_first_it_tries_again(
    aged: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swept() -> None:
        aged.fail(5)
        aged.append()

    at_step(monkeypatch, rewritten_files)("commit dead_letters", swept)
    assert aged.prune().letters == 3
    assert "positions-0-5" in aged.open(aged.pruned)
    aged.check()


def test_beside_one_sweep_after_the_other_it_gives_way(
    aged: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(20, 40))

    def swept(name: str) -> None:
        if name == "commit dead_letters":
            aged.fail(next(numbers))
            aged.append()

    monkeypatch.setattr(rewritten_files, "step", swept)
    done = aged.prune()
    assert (done.letters, [*done.postponed]) == (0, ["dead_letters"])
    aged.check()


def test_a_sweep_that_is_second_appends_again(aged: World, monkeypatch: pytest.MonkeyPatch) -> None:
    aged.fail(5)
    appending = letters_table.append
    done: list[removal.OldLetters] = []

    def beside(*arguments: object) -> None:
        if not done:
            done.append(aged.prune())
        appending(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(letters_table, "append", beside)
    assert append(aged.pruned) == 1
    assert done[0].letters == 3
    assert str(current_letters(installed(aged.pruned))["positions-0-5"].state) == "waiting"
    aged.append()
    aged.check()
