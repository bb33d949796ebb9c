"""The table `rebuilds`, and what of it the job `rebuild_tables` has to read."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shardpost.delta import snapshots
from shardpost.delta.storage import path_of
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import POSITION_EVENTS, POSITIONS, SHARE_HOLDERS
from shardpost.rebuilds import drop, store
from shardpost.rebuilds.model.rebuild import Progress, Rebuild, State
from shardpost.rebuilds.order import Action, Order, tables_of
from shardpost.rebuilds.rebuild_job import REBUILD_TABLES
from shardpost.rebuilds.run import begun
from shardpost.settings import Settings
from shardpost.spark import job_spec
from tests.support.at_step import at_step, killing
from tests.support.histories import Batch, overwrite, put, snapshot, write

TABLES = ("positions", "share_holders")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Give settings with one snapshot of two tables."""
    versions = {table.name: overwrite(settings, table, []) for table in (POSITIONS, SHARE_HOLDERS)}
    snapshots.commit(settings, snapshot(1, versions))
    return settings


@pytest.fixture
def empty(tmp_path: Path) -> Settings:
    """Give the settings of a home without a snapshot."""
    return Settings(home=tmp_path / "empty")


def order(country: str | None = None) -> Order:
    return Order(Action.START, "me", country=country, tables=TABLES)


def built(settings: Settings) -> Rebuild:
    """Return a rebuild whose tables are there."""
    rebuild = begun(settings, order())
    for table in (POSITIONS, SHARE_HOLDERS):
        overwrite(settings, table.located(rebuild.folders), [])
    candidate = replace(rebuild.candidate, tables=dict.fromkeys(TABLES, 0))
    return store.update(settings, replace(rebuild, candidate=candidate, state=State.BUILT))


def test_what_is_stored_is_read_again(settings: Settings) -> None:
    rebuild = begun(settings, order("GB"))
    assert store.current(settings) == rebuild
    assert rebuild.candidate.tables == {}
    assert rebuild.candidate.country == "GB"
    changed = replace(
        rebuild,
        state=State.BUILT,
        progress=Progress(2, 10, 20, 1.5),
        missing=("topic positions: 2 of 3 records",),
        former=snapshots.current(settings),
        swaps=1,
    )
    stored = store.update(settings, changed)
    assert store.list_rebuilds(settings) == [stored]
    assert replace(stored, changed_at=changed.changed_at) == changed


def test_of_two_that_begin_one_is_first(settings: Settings) -> None:
    rebuild = begun(settings, order())
    with pytest.raises(ShardpostError, match="rebuild 2 was started by another run"):
        store.insert(settings, rebuild)
    assert begun(settings, order()) == rebuild  # the same one goes on
    with pytest.raises(ShardpostError, match=r"rebuild 2 .* is building: continue it"):
        begun(settings, order("GB"))


def test_what_was_dropped_leaves_the_disk_unless_a_snapshot_names_it(settings: Settings) -> None:
    rebuild = built(settings)
    folders = {name: Path(settings.tables_root) / one for name, one in rebuild.folders.items()}
    assert all(folder.exists() for folder in folders.values())
    named = replace(snapshot(2, dict.fromkeys(TABLES, 0)), folders={"positions": "positions.2"})
    snapshots.commit(settings, named)
    dropped, removed = drop.drop(settings)
    assert dropped.state is State.DROPPED
    assert removed == ["share_holders.2"]
    assert not folders["share_holders"].exists()
    assert folders["positions"].exists()
    assert Path(path_of(settings, SHARE_HOLDERS)).exists()
    with pytest.raises(ShardpostError, match="there is no rebuild"):
        drop.drop(settings)


def test_numbers_are_never_used_again(settings: Settings) -> None:
    assert built(settings).number == 2
    drop.drop(settings)
    assert built(settings).folders["positions"] == "positions.3"


def test_a_removal_that_was_broken_off_is_finished_by_the_next(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(settings)
    with killing(at_step(monkeypatch, drop), "dropped"):
        drop.drop(settings)
    assert store.current(settings) is None
    assert {*drop.remove_unnamed(settings)} == {"positions.2", "share_holders.2"}
    assert drop.remove_unnamed(settings) == []


def test_without_a_snapshot_or_a_table_nothing_begins(empty: Settings, settings: Settings) -> None:
    with pytest.raises(ShardpostError, match="run `shardpost compact`"):
        begun(empty, order())
    lacking = Order(Action.START, "me", tables=("clients",))
    with pytest.raises(ShardpostError, match="snapshot 1 has no table clients"):
        begun(settings, lacking)
    assert store.list_rebuilds(settings) == []


def test_times_are_those_of_the_clock(settings: Settings) -> None:
    before = datetime.now(UTC)
    rebuild = begun(settings, order())
    assert before <= rebuild.started_at <= store.update(settings, rebuild).changed_at


def test_it_reads_all_records_of_the_histories_and_not_only_the_latest(
    empty: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert REBUILD_TABLES.unread_records(empty) == 0
    write(empty, [Batch(tuple(put("1", f"client{n}", "NASDAQ") for n in range(5)))])
    assert REBUILD_TABLES.unread_records(empty) == 5
    for least, is_long in ((5, True), (6, False)):
        monkeypatch.setattr(job_spec, "LONG_RUN_RECORDS", least)
        assert REBUILD_TABLES.is_long(empty) is is_long


def test_one_that_is_built_has_nothing_to_read(empty: Settings) -> None:
    write(empty, [Batch((put("1", "client1", "NASDAQ"),))])
    order = Order(Action.START, "me", tables=tables_of("share_holders"))
    rebuild = begun(empty, order)
    assert REBUILD_TABLES.unread_records(empty) == 1
    store.update(empty, replace(rebuild, state=State.BUILT))
    assert REBUILD_TABLES.unread_records(empty) == 0


def test_a_snapshot_without_histories_has_nothing_to_read(empty: Settings) -> None:
    snapshots.commit(empty, snapshot(1, {}))
    assert REBUILD_TABLES.unread_records(empty) == 0


def test_a_history_that_is_gone_is_left_to_the_job_to_report(empty: Settings) -> None:
    write(empty, [Batch((put("1", "client1", "NASDAQ"),))])
    shutil.rmtree(path_of(empty, POSITION_EVENTS))
    with pytest.raises(ShardpostError, match="the tables could not be read"):
        REBUILD_TABLES.unread_records(empty)
    assert not REBUILD_TABLES.is_long(empty)
