"""Histories without what is superseded and old: as of any time since, the fold is what it was."""

import errno
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from shardpost.delta import parquet_files, rewritten_files, snapshots, storage
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshot_retention import latest_certain_time
from shardpost.delta.storage import Tables
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders import folding, pruned_histories
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.listed_holders import HoldersQuery, query_holders
from shardpost.holders.model.view_tables import POSITION_EVENTS
from shardpost.holders.pruned_histories import find_superseded, prune
from shardpost.locks.locks import LockedError, exclusive
from shardpost.settings import Settings
from tests.support.appended_histories import AppendedHistories
from tests.support.at_step import at_step, killing
from tests.support.command_line import CommandLineHere
from tests.support.histories import (
    START,
    Batch,
    close,
    country_of,
    held_by,
    holders_of,
    put,
    reject,
    retry,
)
from tests.support.how_far import drawn, some, up_to
from tests.support.installed import installed
from tests.support.random_histories import LAYERED_BATCHES

pytestmark = pytest.mark.also_on_store

NOW = START + timedelta(days=900)
STEPS = (
    "restore tables",
    "write position_events",
    "commit position_events",
    "checkpoint position_events",
    "commit snapshot",
)


def hour(number: int) -> datetime:
    return START + timedelta(hours=number)


def pruned(at: Settings, horizon: datetime) -> Snapshot | None:
    found = find_superseded(installed(at), snapshots.current(installed(at).tables), horizon, {})
    return prune(installed(at), found, NOW) if found.rows else None


def held(world: AppendedHistories, as_of: datetime | None) -> dict[str, list[str]]:
    return held_by(world.opened(), as_of)


@pytest.mark.parametrize(("at_once", "bytes_at_once"), drawn([(3, 1), (10**6, 10**6)]))
@settings(max_examples=up_to(25, quick=3))
@given(LAYERED_BATCHES, strategies.lists(strategies.integers(0, 10), min_size=5, max_size=5))
def test_pruned_between_any_two_runs_it_equals_the_fold_at_every_time_since(
    at_once: int, bytes_at_once: int, batches: Sequence[Batch], horizons: Sequence[int]
) -> None:
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruned_histories, "RECORDS_AT_ONCE", at_once)
        patch.setattr(pruned_histories, "BYTES_AT_ONCE", bytes_at_once)
        patch.setattr(pruned_histories, "PAUSE_SECONDS", 0)
        world = AppendedHistories(Settings(home=Path(home)))
        for batch, horizon in zip(batches, horizons, strict=False):
            world.compact(batch)
            pruned(world.settings, hour(horizon))
            known = snapshots.current(installed(world.settings).tables).history_from
            since = [hour(n) for n in range(11) if known is None or hour(n) >= known]
            tables, history = world.opened(), world.history
            for as_of in (None, *since):
                assert held_by(tables, as_of) == holders_of(history, as_of), as_of


@pytest.fixture
def world(tmp_path: Path) -> AppendedHistories:
    """Give a home in which two records of four can go: c and the first of a."""
    made = AppendedHistories(Settings(home=tmp_path, lock_wait=0.1))
    first = [put("a", "c1", "NASDAQ", 1), put("b", "c1", "NASDAQ", 1), put("c", "c1", "NASDAQ", 1)]
    made.compact(Batch(first, [country_of("NASDAQ", "US"), country_of("NASDAQ", "GB")]))
    made.compact(Batch([put("z", "c3", "NASDAQ", 9)], [country_of("NASDAQ", "US", 1)]))
    made.compact(Batch([put("a", "c2", "NASDAQ", 2), close("c", 3), put("b", "c2", "NASDAQ", 8)]))
    return made


def keys(world: AppendedHistories) -> list[tuple[str, int]]:
    sql = "SELECT key, seq FROM position_events ORDER BY seq"
    return [(row["key"], row["seq"]) for row in world.rows(sql)]


def paths(world: AppendedHistories) -> set[str]:
    version = snapshots.current(installed(world.settings).tables).tables[POSITION_EVENTS.name]
    return {*storage.sizes(installed(world.settings).tables, POSITION_EVENTS, version)}


def test_of_each_key_the_latest_before_the_horizon_stays_and_all_after_it(
    world: AppendedHistories,
) -> None:
    before = paths(world)
    found = find_superseded(
        installed(world.settings), snapshots.current(installed(world.settings).tables), hour(5), {}
    )
    assert found.rows == {"position_events": 2}
    assert 0 < found.bytes < 10_000
    made = prune(installed(world.settings), found, NOW)
    assert made is not None
    assert (made.number, made.history_from) == (4, hour(5))
    assert keys(world) == [("b", 1), ("z", 3), ("a", 4), ("c", 5), ("b", 6)]
    assert len(before & paths(world)) == 2  # only the file that loses records is written anew
    assert len(world.rows("SELECT key FROM exchange_events")) == 3
    assert pruned(world.settings, hour(5)) is None


def test_the_horizon_only_moves_forward(world: AppendedHistories) -> None:
    pruned(world.settings, hour(5))
    world.compact(Batch([put("a", "c1", "NASDAQ", 1), put("a", "c1", "NASDAQ", 1)]))
    made = pruned(world.settings, hour(3))
    assert made is not None
    assert made.history_from == hour(5)


def test_rejected_records_retries_origins_of_letters_and_the_layer_stay(
    tmp_path: Path,
) -> None:
    world = AppendedHistories(Settings(home=tmp_path))
    origin = put("a", "c1", "NASDAQ", 1)
    world.compact(Batch([origin, reject("a", 1), retry(put("a", "c2", "NASDAQ", 1), 1), origin]))
    layer = frozenset({"positions"})
    world.compact(Batch([origin, origin], unfolded=layer))
    newest = snapshots.current(installed(world.settings).tables)
    assert find_superseded(
        installed(world.settings), newest, hour(5), {"positions": {(0, 0)}}
    ).rows == {"position_events": 1}
    pruned(world.settings, hour(5))
    assert [seq for _, seq in keys(world)] == [0, 1, 4, 5]  # 0 is the retry


def test_a_time_before_the_horizon_is_refused(world: AppendedHistories) -> None:
    made = pruned(world.settings, hour(5))
    assert made is not None
    with pytest.raises(ShardpostError, match=r"has the whole history from 2026-11-16T05:00:00"):
        query_holders(installed(world.settings).tables, made, HoldersQuery(as_of=hour(4)))
    query_holders(installed(world.settings).tables, made, HoldersQuery(as_of=hour(5)))
    old = snapshots.get(installed(world.settings).tables, 3, now=NOW)
    query_holders(installed(world.settings).tables, old, HoldersQuery(as_of=hour(4)))


def test_the_commands_say_so_and_json_is_what_the_contract_names(
    world: AppendedHistories,
) -> None:
    shardpost = CommandLineHere(world.settings.environ())
    assert "pruned" not in shardpost.answer("explain", "c2")[2]
    pruned(world.settings, hour(5))
    code, _, said = shardpost.answer("explain", "c2")
    assert (code, "superseded records before 2026-11-16 05:00 UTC" in said) == (0, True)
    said = "the newest snapshot has the whole history from 2026-11-16 05:00 UTC on"
    assert said in shardpost("snapshots")
    assert "history_from" not in snapshots.current(installed(world.settings).tables).as_json()


@pytest.mark.parametrize("killed_at", some(STEPS, 2))
def test_killed_at_any_step_all_is_there_and_the_next_run_goes_on(
    world: AppendedHistories, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    before = keys(world)
    with killing(at_step(monkeypatch, rewritten_files, folding), killed_at):
        pruned(world.settings, hour(5))
    assert keys(world) == before
    assert held(world, hour(2)) == holders_of(world.history, hour(2))
    pruned(world.settings, hour(5))
    assert keys(world) == [("b", 1), ("z", 3), ("a", 4), ("c", 5), ("b", 6)]
    world.compact(Batch([put("q", "c9", "NASDAQ", 9)]))
    assert held(world, None) == holders_of(world.history)


def test_a_full_disk_changes_nothing(
    world: AppendedHistories, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys(world)

    def fail(*_given: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(parquet_files, "rewrite", fail)
        with pytest.raises(OSError, match="no space left"):
            pruned(world.settings, hour(5))
    assert keys(world) == before
    assert pruned(world.settings, hour(5)) is not None


def test_beside_a_compaction_it_waits_and_what_is_found_stays_true(
    world: AppendedHistories,
) -> None:
    found = find_superseded(
        installed(world.settings), snapshots.current(installed(world.settings).tables), hour(5), {}
    )
    with (
        exclusive(installed(world.settings).files, COMPACT_POSITIONS.name, "x"),
        pytest.raises(LockedError),
    ):
        prune(installed(world.settings), found, NOW)
    world.compact(Batch([put("a", "c7", "NASDAQ", 1)]))  # a late record, latest before the horizon
    prune(installed(world.settings), found, NOW)
    for as_of in (None, hour(5), hour(8), hour(10)):
        assert held(world, as_of) == holders_of(world.history, as_of)


@pytest.fixture
def of_three_files(world: AppendedHistories, monkeypatch: pytest.MonkeyPatch) -> AppendedHistories:
    """Give a home of which three files lose records, to be pruned one by one."""
    world.compact(Batch([put("z", "c1", "NASDAQ", 3), put("a", "c3", "NASDAQ", 3)]))
    world.compact(Batch([put("z", "c3", "NASDAQ", 4)]))
    monkeypatch.setattr(pruned_histories, "BYTES_AT_ONCE", 1)
    monkeypatch.setattr(pruned_histories, "PAUSE_SECONDS", 0)
    return world


def test_a_large_history_is_pruned_in_steps_between_which_compactions_get_the_lock(
    of_three_files: AppendedHistories, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, numbers = of_three_files, [5]

    def compact() -> None:
        numbers.append(snapshots.current(installed(world.settings).tables).number)
        assert snapshots.current(installed(world.settings).tables).history_from == hour(5)
        with exclusive(installed(world.settings).files, COMPACT_POSITIONS.name, "x"):
            made = world.compact(Batch([put("y", "c4", "NASDAQ", 8)]))
        numbers.append(made.number)
        for as_of in (None, hour(5), hour(8)):
            assert held(world, as_of) == holders_of(world.history, as_of)

    monkeypatch.setattr(pruned_histories, "pause", compact)
    made = pruned(world.settings, hour(5))
    assert made is not None
    assert [*numbers, made.number] == [5, 6, 7, 8, 9, 10]
    assert [seq for _, seq in keys(world)] == [1, 3, 5, 6, 8, 9, 10, 11]
    monkeypatch.undo()
    assert find_superseded(installed(world.settings), made, hour(5), {}).rows == {}


def test_what_was_pruned_stays_so_where_a_compaction_then_takes_too_long(
    of_three_files: AppendedHistories, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = of_three_files
    with ExitStack() as stack:
        running = exclusive(installed(world.settings).files, COMPACT_POSITIONS.name, "x")
        monkeypatch.setattr(pruned_histories, "pause", lambda: stack.enter_context(running))
        with pytest.raises(LockedError):
            pruned(world.settings, hour(5))
    newest = snapshots.current(installed(world.settings).tables)
    assert (newest.number, newest.history_from) == (6, hour(5))
    monkeypatch.setattr(pruned_histories, "pause", lambda: None)
    assert pruned(world.settings, hour(5)) is not None
    assert held(world, None) == holders_of(world.history)


def test_files_without_records_before_the_horizon_are_not_read(
    world: AppendedHistories, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.compact(Batch([put("late", "c1", "NASDAQ", 9)]))
    read: list[str] = []
    parts = parquet_files.parts

    def noting(at: Tables, table: Table, path: str, *columns: Any) -> Any:
        read.append(path)
        return parts(at, table, path, *columns)

    monkeypatch.setattr(parquet_files, "parts", noting)
    find_superseded(
        installed(world.settings), snapshots.current(installed(world.settings).tables), hour(9), {}
    )
    assert len(read) == 2
    assert len(paths(world)) == 4
    read.clear()
    monkeypatch.setattr(pruned_histories, "RECORDS_AT_ONCE", 1)
    find_superseded(
        installed(world.settings), snapshots.current(installed(world.settings).tables), hour(9), {}
    )
    assert len(read) == 2  # once, however many parts there are


def test_the_latest_certain_time_is_that_of_a_clock_that_did_not_jump() -> None:
    at = datetime(2026, 11, 16, tzinfo=UTC)
    right = [(n, at + timedelta(hours=n)) for n in range(1, 11)]
    now = at + timedelta(hours=11)
    assert latest_certain_time(right, now) == now
    assert latest_certain_time([], now) == now
    ahead = timedelta(days=3650)
    assert latest_certain_time(right, now + ahead) == right[-1][1] + timedelta(days=1)
    wrong = [(n, one + ahead) for n, one in right[5:]]
    certain = latest_certain_time([*right[:5], *wrong], now + ahead)
    assert now <= certain <= now + timedelta(days=1)
    assert latest_certain_time(right, now - timedelta(days=30)) == now - timedelta(days=30)
