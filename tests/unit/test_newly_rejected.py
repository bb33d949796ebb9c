"""Letters of what only swapped tables reject; real Delta tables, Kafka in memory, no Spark."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, example, given, strategies
from hypothesis import settings as example_settings

from shardpost.delta import rewritten_files, snapshots, storage, table_log
from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.delta.storage import path_of
from shardpost.errors import ShardpostError
from shardpost.holders import rejected_letters
from shardpost.holders.model.view_tables import (
    EXCHANGES,
    POSITIONS,
    REJECTED_RECORDS,
    SHARE_HOLDERS,
    VIEW,
)
from shardpost.installation import Installation
from shardpost.kafka.records import TopicPartition
from shardpost.rebuilds import registry, run, swap
from shardpost.rebuilds.model.rebuild import State
from shardpost.rebuilds.rebuild_job import Action, RebuildRequest
from shardpost.rebuilds.run import begun
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.at_step import at_step, killing
from tests.support.histories import START, arrow, overwrite, put, rejected_row, snapshot
from tests.support.how_far import some, up_to
from tests.support.installed import installed
from tests.support.letter_world import header
from tests.support.memory_kafka import MemoryKafka, memory_kafka

KAFKA = {"partitions": 1}
OWN = (SHARE_HOLDERS.name, REJECTED_RECORDS.name)
Rejected = dict[int, int]  # offset: snapshot


@dataclass
class World:
    """Tables in use, and those of a rebuild; `arrived` are {snapshot: offsets} by folder."""

    kafka: MemoryKafka
    arrived: dict[str, dict[int, set[int]]] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self.kafka.settings

    def begin(self, old: set[int], new: set[int]) -> None:
        """Commit a snapshot that rejected `old`, and a rebuild of it that rejects `new`."""
        tables = (POSITIONS, EXCHANGES, SHARE_HOLDERS)
        versions = {table.name: overwrite(self.settings, table, []) for table in tables}
        versions[REJECTED_RECORDS.name] = self._overwrite(REJECTED_RECORDS.path, old)
        first = replace(snapshot(1, versions), counts=Counts(rejected=1))
        snapshots.commit(installed(self.settings).tables, first)
        self.send()
        made = begun(installed(self.settings), RebuildRequest(Action.START, "me", tables=OWN))
        folder = made.folders[REJECTED_RECORDS.name]
        versions = {
            **made.candidate.tables,
            SHARE_HOLDERS.name: overwrite(self.settings, SHARE_HOLDERS.located(made.folders), []),
            REJECTED_RECORDS.name: self._overwrite(folder, new),
        }
        candidate = replace(made.candidate, tables=versions)
        registry.update(
            installed(self.settings).tables, replace(made, candidate=candidate, state=State.BUILT)
        )

    def compact(self, offsets: dict[str, set[int]]) -> None:
        """Commit a snapshot whose records each decoder rejects, by the folder that it fills."""
        last = snapshots.current(installed(self.settings).tables)
        for folder, found in offsets.items():
            self.arrived.setdefault(folder, {})[last.number + 1] = found
        view = self.top_up(
            installed(self.settings), last, replace(last, number=last.number + 1), ()
        )
        snapshots.commit(installed(self.settings).tables, replace(view, number=last.number + 1))

    def top_up(
        self, installation: Installation, view: Snapshot, at: Snapshot, _own: object
    ) -> Snapshot:
        """Append what arrived since a view to its rejected records."""
        table = view.located(REJECTED_RECORDS)
        path, version = (
            path_of(installation.tables, table),
            view.tables[REJECTED_RECORDS.name],
        )
        if (newest := storage.writable(installation.tables, table)).version() != version:
            newest.restore(version)
        for number in range(view.number + 1, at.number + 1):
            found = self.arrived.get(table.path, {}).get(number, set())
            write_deltalake(path, arrow(table, self._rows(found, number)), mode="append")
        tables = {**view.tables, REJECTED_RECORDS.name: DeltaTable(path).version()}
        return replace(
            at,
            tables=tables,
            folders=view.folders,
            folded={SHARE_HOLDERS.name: view.folded_up_to(SHARE_HOLDERS.name)},
            rebuilt_in=view.rebuilt_in,
        )

    def number_all(self, folder: str, number: int) -> None:
        """Give all rejected records of the tables beside the number of a snapshot."""
        found = registry.require_current(installed(self.settings).tables)
        there = rows(
            installed(self.settings).tables,
            'SELECT "offset" FROM rejected_records',
            at_snapshot(found.candidate, REJECTED_RECORDS),
        )
        table = replace(REJECTED_RECORDS, folder=folder)
        made = self._rows({row["offset"] for row in there}, number)
        version = overwrite(self.settings, table, made)
        tables = {**found.candidate.tables, REJECTED_RECORDS.name: version}
        candidate = replace(found.candidate, tables=tables)
        registry.update(installed(self.settings).tables, replace(found, candidate=candidate))

    def do(self, action: Action) -> int:
        """Swap or roll back; return how many letters that sent."""
        with mock.patch.object(run, "top_up", self.top_up):
            _, found = run.run(RebuildRequest(action, "anna"), installed(self.settings))
        return int(found["letters"])

    def send(self) -> None:
        """Send letters, as a compaction does."""
        rejected_letters.send(
            installed(self.settings), snapshots.current(installed(self.settings).tables)
        )

    def rejected(self) -> Rejected:
        """Return what is rejected by the tables in use."""
        view = at_snapshot(snapshots.current(installed(self.settings).tables), REJECTED_RECORDS)
        found = rows(
            installed(self.settings).tables, 'SELECT "offset", snapshot FROM rejected_records', view
        )
        assert len({row["offset"] for row in found}) == len(found)
        return {row["offset"]: row["snapshot"] for row in found}

    def letters(self) -> list[int]:
        """Return the offsets of whose records there are letters, sorted."""
        topic = TopicPartition(self.settings.topic("dead-letters"), 0)
        return sorted(
            int(header(one, "origin-offset") or -1) for one in self.kafka.committed(topic)
        )

    def _overwrite(self, folder: str, offsets: set[int]) -> int:
        table = replace(REJECTED_RECORDS, folder=folder)
        return overwrite(self.settings, table, self._rows(offsets, 1))

    def _rows(self, offsets: set[int], number: int) -> list[dict[str, Any]]:
        return [rejected_row("positions", offset, number) for offset in sorted(offsets)]


@pytest.fixture
def world(kafka: MemoryKafka) -> World:
    """Give a world without tables."""
    return World(kafka)


NUMBERED = 'SELECT "offset", snapshot FROM rejected_records ORDER BY 1, 2'
FORMER = START - timedelta(days=9)
NEW = "rejected_records.2"
OLD = "rejected_records"
STEPS = [
    *("publish the rest", "holders that differ", "newly rejected", f"write {NEW}"),
    *(f"commit {NEW}", f"checkpoint {NEW}", "leave tables", "commit snapshot", "swapped"),
    *("on record", "publish the difference"),
]


def test_what_only_new_tables_reject_gets_letters_once(world: World) -> None:
    world.begin({1, 2}, {2, 3, 4})
    assert world.letters() == [1, 2]
    assert world.do(Action.SWAP) == 2
    assert world.rejected() == {2: 1, 3: 2, 4: 2}
    assert world.letters() == [1, 2, 3, 4]
    assert [world.do(action) for action in (Action.ROLLBACK, Action.SWAP)] == [0, 0]
    assert world.rejected() == {2: 1, 3: 2, 4: 2}
    assert world.letters() == [1, 2, 3, 4]


def test_what_only_the_old_tables_rejected_meanwhile_gets_letters_by_a_rollback(
    world: World,
) -> None:
    world.begin({1}, {1})
    world.do(Action.SWAP)
    world.compact({OLD: {5, 6}, NEW: {6}})
    assert world.do(Action.ROLLBACK) == 1
    assert world.letters() == [1, 5, 6]
    assert world.rejected() == {1: 1, 5: 4, 6: 3}


def test_what_both_reject_gets_no_second_letter_whatever_its_rows_are_numbered(
    world: World,
) -> None:
    """Tables that were made from the topics have the number of the snapshot they were made of."""
    world.begin({1}, {1})
    world.compact({OLD: set()})
    world.number_all(NEW, 2)
    assert world.do(Action.SWAP) == 0
    assert world.letters() == [1]


def test_a_record_in_the_place_of_one_of_a_former_topic_gets_its_letter(world: World) -> None:
    world.begin({1}, {1, 2})
    settings, rebuild = world.settings, registry.require_current(installed(world.settings).tables)
    former = [rejected_row("positions", offset, 1, timestamp=FORMER) for offset in (1, 2)]
    present = [rejected_row("positions", offset, 1) for offset in (1, 2)]
    in_use = overwrite(settings, REJECTED_RECORDS, [*former, present[0]])
    beside = rebuild.candidate.located(REJECTED_RECORDS)
    tables = rebuild.candidate.tables
    tables = {**tables, beside.name: overwrite(settings, beside, [*former, *present])}
    registry.update(
        installed(settings).tables,
        replace(rebuild, candidate=replace(rebuild.candidate, tables=tables)),
    )
    last = snapshots.current(installed(settings).tables)
    named = {**last.tables, REJECTED_RECORDS.name: in_use}
    snapshots.commit(installed(settings).tables, replace(last, number=2, tables=named))
    with mock.patch.object(
        run, "top_up", lambda _, view, at, _own: replace(view, number=at.number)
    ):
        _, done = run.run(RebuildRequest(Action.SWAP, "anna"), installed(settings))
    assert done["letters"] == 1
    found = rows(
        installed(settings).tables,
        NUMBERED,
        at_snapshot(snapshots.current(installed(settings).tables), REJECTED_RECORDS),
    )
    assert [tuple(row.values()) for row in found] == [(1, 1), (1, 1), (2, 1), (2, 3)]


def test_a_swap_undoes_what_a_run_that_did_not_commit_left_of_shared_tables(world: World) -> None:
    world.begin({1}, {1})
    settings, last = world.settings, snapshots.current(installed(world.settings).tables)
    overwrite(settings, POSITIONS, [put("7", "client7", "NASDAQ").row()])
    world.do(Action.SWAP)
    made = snapshots.current(installed(settings).tables)
    assert made.number == last.number + 1
    for table in VIEW:
        newest = storage.open_table(installed(settings).tables, made.located(table))
        is_fold = table.layer and table_log.folded_in(newest) == made.number
        assert is_fold or newest.version() == made.tables[table.name]
    assert rows(installed(settings).tables, "SELECT * FROM positions", {POSITIONS: None}) == []


def test_nothing_is_written_where_nothing_is_newly_rejected(world: World) -> None:
    world.begin({1, 2}, {1})
    before = registry.require_current(installed(world.settings).tables).candidate.tables[
        REJECTED_RECORDS.name
    ]
    assert world.do(Action.SWAP) == 0
    assert (
        snapshots.current(installed(world.settings).tables).tables[REJECTED_RECORDS.name] == before
    )


def test_tables_that_were_not_topped_up_are_not_swapped(world: World) -> None:
    world.begin({1}, {1})
    world.compact({OLD: {5}})
    with (
        mock.patch.object(run, "top_up", lambda _, view, _at, _own: view),
        pytest.raises(ShardpostError, match="expected snapshot 2, found 1: run again"),
    ):
        run.run(RebuildRequest(Action.SWAP, "anna"), installed(world.settings))
    assert snapshots.current(installed(world.settings).tables).number == 2


@pytest.mark.parametrize("step", some(STEPS))
def test_killed_at_any_step_each_letter_is_sent_once(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    world.begin({1}, {1, 2, 3})
    at: Callable[..., None] = at_step(monkeypatch, run, swap, rewritten_files)
    with killing(at, step):
        world.do(Action.SWAP)
    world.do(Action.SWAP)
    number = snapshots.current(installed(world.settings).tables).number
    assert number == 2
    assert world.rejected() == {1: 1, 2: number, 3: number}
    assert world.letters() == [1, 2, 3]


Arrival = tuple[set[int], set[int]]
OFFSETS = strategies.sets(strategies.integers(0, 5))
ACTIONS = strategies.lists(
    strategies.one_of(
        strategies.tuples(OFFSETS, OFFSETS), strategies.sampled_from(["swap", "rollback", "send"])
    ),
    max_size=8,
)


@example_settings(
    max_examples=up_to(15, quick=2),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(OFFSETS, OFFSETS, ACTIONS)
@example(set(), {1}, ["swap", "rollback", ({2}, {3}), "swap", "rollback", "swap"])
@example({1}, {2}, ["swap", ({1, 2}, {2, 3}), "rollback", ({4}, {5}), "send", "swap"])
def test_whatever_tables_in_use_have_rejected_has_one_letter(
    tmp_path_factory: pytest.TempPathFactory,
    old: set[int],
    new: set[int],
    actions: list[str | Arrival],
) -> None:
    with memory_kafka(partitions=1, home=tmp_path_factory.mktemp("home")) as kafka:
        apply_topics(installed(kafka.settings))
        world = World(kafka)
        world.begin(old, new)
        expected, in_use = {*old}, OLD
        by_folder = {OLD: {*old}, NEW: {*new}}
        for number, action in enumerate(actions, 1):
            if action == "send":
                world.send()
            elif isinstance(action, str):
                to = NEW if action == "swap" else OLD
                if to == in_use:
                    continue
                world.do(Action(action))
                in_use = to
            else:
                found = {
                    folder: {10 * number + offset for offset in some}
                    for folder, some in zip((OLD, NEW), action, strict=True)
                }
                world.compact(found)
                by_folder = {folder: by_folder[folder] | found[folder] for folder in found}
            expected |= by_folder[in_use]
            assert {*world.rejected()} == by_folder[in_use]
        world.send()
        assert world.letters() == sorted(expected)
