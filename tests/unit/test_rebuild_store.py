"""The table `rebuilds`, and what of it the job `rebuild_tables` has to read."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shardpost.delta import snapshots
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import POSITION_EVENTS, POSITIONS, SHARE_HOLDERS
from shardpost.rebuilds import drop, registry
from shardpost.rebuilds.model.rebuild import Progress, Rebuild, State
from shardpost.rebuilds.rebuild_job import REBUILD_TABLES, Action, RebuildRequest, tables_of
from shardpost.rebuilds.run import begun
from shardpost.settings import Settings
from shardpost.spark import job as spark_job
from shardpost.values.holding_rule import Rule
from tests.support.aged_rebuilds import drop_open
from tests.support.at_step import at_step, killing
from tests.support.histories import Batch, overwrite, put, snapshot, write
from tests.support.installed import installed
from tests.support.object_store import folder_of

pytestmark = pytest.mark.also_on_store

TABLES = ("positions", "share_holders")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Give settings with one snapshot of two tables."""
    versions = {table.name: overwrite(settings, table, []) for table in (POSITIONS, SHARE_HOLDERS)}
    snapshots.commit(installed(settings).tables, snapshot(1, versions))
    return settings


@pytest.fixture
def empty(tmp_path: Path) -> Settings:
    """Give the settings of a home without a snapshot."""
    return Settings(home=tmp_path / "empty")


def order(country: str | None = None) -> RebuildRequest:
    return RebuildRequest(Action.START, "me", country=country, tables=TABLES)


def built(settings: Settings) -> Rebuild:
    """Return a rebuild whose tables are there."""
    rebuild = begun(installed(settings), order())
    for table in (POSITIONS, SHARE_HOLDERS):
        overwrite(settings, table.located(rebuild.folders), [])
    candidate = replace(rebuild.candidate, tables=dict.fromkeys(TABLES, 0))
    return registry.update(
        installed(settings).tables, replace(rebuild, candidate=candidate, state=State.BUILT)
    )


def test_what_is_stored_is_read_again(settings: Settings) -> None:
    rebuild = begun(installed(settings), order("GB"))
    assert registry.current(installed(settings).tables) == rebuild
    assert rebuild.candidate.tables == {}
    assert rebuild.candidate.rule == Rule("GB")
    changed = replace(
        rebuild,
        state=State.BUILT,
        progress=Progress(2, 10, 20, 1.5),
        missing=("topic positions: 2 of 3 records",),
        former=snapshots.current(installed(settings).tables),
        swaps=1,
    )
    stored = registry.update(installed(settings).tables, changed)
    assert registry.list_rebuilds(installed(settings).tables) == [stored]
    assert replace(stored, changed_at=changed.changed_at) == changed


def test_of_two_that_begin_one_is_first(settings: Settings) -> None:
    rebuild = begun(installed(settings), order())
    with pytest.raises(ShardpostError, match="rebuild 2 was started by another run"):
        registry.insert(installed(settings).tables, rebuild)
    assert begun(installed(settings), order()) == rebuild  # the same one goes on
    with pytest.raises(ShardpostError, match=r"rebuild 2 .* is building: continue it"):
        begun(installed(settings), order("GB"))


def test_what_was_dropped_leaves_the_disk_unless_a_snapshot_names_it(settings: Settings) -> None:
    rebuild = built(settings)
    folders = {
        name: folder_of(settings, Table(name, (), folder=one))
        for name, one in rebuild.folders.items()
    }
    assert all(folder.exists() for folder in folders.values())
    named = replace(snapshot(2, dict.fromkeys(TABLES, 0)), folders={"positions": "positions.2"})
    snapshots.commit(installed(settings).tables, named)
    dropped, removed = drop_open(installed(settings).tables)
    assert dropped.state is State.DROPPED
    assert removed == ["share_holders.2"]
    assert not [path for path in folders["share_holders"].rglob("*") if path.is_file()]
    assert folders["positions"].exists()
    assert folder_of(settings, SHARE_HOLDERS).exists()
    with pytest.raises(ShardpostError, match="there is no rebuild"):
        drop_open(installed(settings).tables)


def test_numbers_are_never_used_again(settings: Settings) -> None:
    assert built(settings).number == 2
    drop_open(installed(settings).tables)
    assert built(settings).folders["positions"] == "positions.3"


def test_a_removal_that_was_broken_off_is_finished_by_the_next(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(settings)
    with killing(at_step(monkeypatch, drop), "dropped"):
        drop_open(installed(settings).tables)
    assert registry.current(installed(settings).tables) is None
    assert {*drop.remove_unnamed(installed(settings).tables)} == {"positions.2", "share_holders.2"}
    assert drop.remove_unnamed(installed(settings).tables) == []


def test_without_a_snapshot_or_a_table_nothing_begins(empty: Settings, settings: Settings) -> None:
    with pytest.raises(ShardpostError, match="run `shardpost compact`"):
        begun(installed(empty), order())
    lacking = RebuildRequest(Action.START, "me", tables=("clients",))
    with pytest.raises(ShardpostError, match="snapshot 1 has no table clients"):
        begun(installed(settings), lacking)
    assert registry.list_rebuilds(installed(settings).tables) == []


def test_times_are_those_of_the_clock(settings: Settings) -> None:
    before = datetime.now(UTC)
    rebuild = begun(installed(settings), order())
    assert (
        before
        <= rebuild.started_at
        <= registry.update(installed(settings).tables, rebuild).changed_at
    )


def test_it_reads_all_records_of_the_histories_and_not_only_the_latest(
    empty: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert REBUILD_TABLES.unread_records(installed(empty)) == 0
    write(empty, [Batch(tuple(put("1", f"client{n}", "NASDAQ") for n in range(5)))])
    assert REBUILD_TABLES.unread_records(installed(empty)) == 5
    for least, is_long in ((5, True), (6, False)):
        monkeypatch.setattr(spark_job, "LONG_RUN_RECORDS", least)
        assert REBUILD_TABLES.is_long(installed(empty)) is is_long


def test_one_that_is_built_has_nothing_to_read(empty: Settings) -> None:
    write(empty, [Batch((put("1", "client1", "NASDAQ"),))])
    order = RebuildRequest(Action.START, "me", tables=tables_of("share_holders"))
    rebuild = begun(installed(empty), order)
    assert REBUILD_TABLES.unread_records(installed(empty)) == 1
    registry.update(installed(empty).tables, replace(rebuild, state=State.BUILT))
    assert REBUILD_TABLES.unread_records(installed(empty)) == 0


def test_a_snapshot_without_histories_has_nothing_to_read(empty: Settings) -> None:
    snapshots.commit(installed(empty).tables, snapshot(1, {}))
    assert REBUILD_TABLES.unread_records(installed(empty)) == 0


def test_a_history_that_is_gone_is_left_to_the_job_to_report(empty: Settings) -> None:
    write(empty, [Batch((put("1", "client1", "NASDAQ"),))])
    shutil.rmtree(folder_of(empty, POSITION_EVENTS))
    with pytest.raises(ShardpostError, match="the tables could not be read"):
        REBUILD_TABLES.unread_records(installed(empty))
    assert not REBUILD_TABLES.is_long(installed(empty))
