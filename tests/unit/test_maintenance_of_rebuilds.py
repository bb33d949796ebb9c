"""Maintenance beside rebuilds: what is beside is kept while it may be swapped, and then it goes."""

from collections.abc import Collection, Iterator
from pathlib import Path
from random import Random

import pytest

from shardpost.delta import snapshots, storage
from shardpost.delta.storage import Tables
from shardpost.delta.stored_files import stored_files
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import POSITION_EVENTS, POSITIONS, SHARE_HOLDERS, VIEW
from shardpost.maintenance import removable_files, stored_tables
from shardpost.maintenance.maintain import maintain
from shardpost.maintenance.stored_tables import table_sizes
from shardpost.rebuilds import registry
from shardpost.rebuilds.model.rebuild import NAMES, State
from shardpost.rebuilds.registry import rebuilding
from shardpost.settings import Settings
from tests.support.aged_rebuilds import AgedRebuilds
from tests.support.aged_tables import AgedTables
from tests.support.how_far import drawn, some, up_to
from tests.support.installed import installed

FOLDERS = {f"{name}.2" for name in NAMES}
LONG = 3  # days after which a snapshot is not kept any more
OF_POSITIONS = (POSITION_EVENTS.name, POSITIONS.name, SHARE_HOLDERS.name)


@pytest.fixture
def aged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgedTables:
    monkeypatch.setattr(removable_files, "noted_snapshots", lambda _settings: set())
    settings = Settings.model_validate({"home": tmp_path, "snapshot_days": 2})
    made = AgedTables(settings, Random(7), fold_share=0.5)  # noqa: S311
    made.compact()
    return made


@pytest.fixture
def beside(aged: AgedTables) -> AgedRebuilds:
    return AgedRebuilds(aged)


def there(settings: Settings) -> set[str]:
    """Return the folders of the tables of a view."""
    found = {path.name for path in Path(settings.tables_root).iterdir()}
    return {name for name in found if name.partition(".")[0] in NAMES}


def age(aged: AgedTables, days: int) -> None:
    """Compact daily, for so long."""
    for _ in range(days):
        aged.wait(days=1)
        aged.compact()


def data_files(settings: Settings, path: str) -> set[str]:
    [table] = [one.located({one.name: path}) for one in VIEW if one.name == path.partition(".")[0]]
    files = (file.path for file in stored_files(installed(settings).tables, table))
    return {path for path in files if not path.startswith("_delta_log")}


def needed_files(settings: Settings, table: Table) -> set[str]:
    """Return the files of a table that snapshots name, all in one folder."""
    found = snapshots.list_all(installed(settings).tables)
    sizes = (
        storage.sizes(installed(settings).tables, one.located(table), one.tables[table.name])
        for one in found
    )
    return {path for files in sizes for path in files}


def go_on(beside: AgedRebuilds, random: Random) -> None:
    """Go on with the rebuild that there is, or begin one."""
    crash = random.choice([None, None, "files", "tables"])
    found = beside.current
    if found is None:
        beside.begin(*random.choice([NAMES, (SHARE_HOLDERS.name,), OF_POSITIONS]))
    elif found.state is State.BUILDING:
        beside.build(crash)
    else:
        random.choice([lambda: beside.top_up(crash), beside.swap, beside.swap, beside.drop])()


def test_what_is_built_and_what_it_is_built_of_stay(aged: AgedTables, beside: AgedRebuilds) -> None:
    made = beside.begin(*NAMES)
    beside.build(crash="tables")
    written = {name: data_files(aged.settings, name) for name in FOLDERS}
    age(aged, LONG)
    found = maintain(installed(aged.settings), aged.now)
    assert found.pinned == {made.pinned: "rebuild 2 is built from it"}
    assert {name: data_files(aged.settings, name) for name in FOLDERS} == written
    beside.require_readable()
    beside.build()
    maintain(installed(aged.settings), aged.now)
    beside.require_readable()


@pytest.mark.parametrize("tables", drawn([(SHARE_HOLDERS.name,), NAMES]), ids=len)
def test_tables_to_be_swapped_and_those_for_a_rollback_stay(
    aged: AgedTables, beside: AgedRebuilds, tables: tuple[str, ...]
) -> None:
    beside.begin(*tables)
    beside.build()
    for _ in range(3):  # ready, in use, rolled back
        age(aged, LONG)
        maintain(installed(aged.settings), aged.now)
        beside.require_readable()
        aged.require_all_kept()
        beside.swap()
    aged.require_all_kept()


@pytest.mark.parametrize("crash", drawn(["files", "tables"]))
def test_what_a_top_up_is_writing_stays(aged: AgedTables, beside: AgedRebuilds, crash: str) -> None:
    beside.begin(*NAMES)
    beside.build()
    age(aged, LONG)
    beside.top_up(crash)
    before = {name: data_files(aged.settings, name) for name in FOLDERS}
    maintain(installed(aged.settings), aged.now)
    assert {name: data_files(aged.settings, name) for name in FOLDERS} == before
    beside.require_readable()
    beside.top_up()
    maintain(installed(aged.settings), aged.now)
    for name in FOLDERS:
        assert len(data_files(aged.settings, name)) <= 1  # the rows, without what was left
    beside.require_readable()


def test_what_was_dropped_goes_once_no_kept_snapshot_names_it(
    aged: AgedTables, beside: AgedRebuilds
) -> None:
    beside.begin(*NAMES)
    beside.build()
    assert {*beside.drop()} == FOLDERS
    beside.begin(*NAMES)
    beside.build()
    aged.wait(days=1)
    aged.compact()
    beside.swap()
    age(aged, 1)
    assert beside.drop() == []
    maintain(installed(aged.settings), aged.now)
    aged.require_all_kept()
    assert there(aged.settings) == {*NAMES} | {f"{name}.3" for name in NAMES}
    age(aged, LONG)
    said = maintain(installed(aged.settings), aged.now, dry_run=True)
    assert {one.table.path for one in said.tables if one.is_whole} == {*NAMES}
    assert any("positions: the whole unreferenced folder" in one for one in said.lines(30))
    assert {*NAMES} < there(aged.settings)
    assert maintain(installed(aged.settings), aged.now).as_json() == said.as_json()
    assert there(aged.settings) == {f"{name}.3" for name in NAMES}
    aged.compact()
    aged.require_all_kept()
    assert maintain(installed(aged.settings), aged.now).errors == []
    assert {size.table for size in table_sizes(installed(aged.settings).tables)} >= {"positions.3"}


def test_beside_a_run_of_a_rebuild_no_folder_goes(aged: AgedTables, beside: AgedRebuilds) -> None:
    beside.begin(SHARE_HOLDERS.name)
    beside.build()
    beside.swap()
    beside.drop()
    age(aged, LONG)
    with rebuilding(installed(aged.settings).files):
        found = maintain(installed(aged.settings), aged.now)
    assert (
        "share_holders: nothing removed: a run of the rebuild is already running" in found.errors[0]
    )
    assert SHARE_HOLDERS.name in there(aged.settings)
    assert maintain(installed(aged.settings), aged.now).errors == []
    assert there(aged.settings) == {*NAMES} - {SHARE_HOLDERS.name} | {"share_holders.2"}


def test_each_folder_is_listed_with_what_keeps_it(aged: AgedTables, beside: AgedRebuilds) -> None:
    def kept_for(name: str) -> str:
        [found] = [
            one.kept_for
            for one in table_sizes(installed(aged.settings).tables)
            if one.table == name
        ]
        return found

    beside.begin(SHARE_HOLDERS.name)
    beside.build(crash="tables")
    assert kept_for("share_holders.2") == "rebuild 2, which is being built"
    beside.build()
    assert kept_for("share_holders.2") == "rebuild 2, to be swapped"
    assert kept_for("share_holders") == "1 snapshot"
    beside.swap()
    assert kept_for("share_holders") == "1 snapshot; rebuild 2, for a rollback"
    assert kept_for("share_holders.2") == "1 snapshot"
    assert kept_for("positions") == "2 snapshots"
    assert kept_for("rebuilds") == "its newest version"
    beside.swap()
    assert kept_for("share_holders.2") == "1 snapshot; rebuild 2, to be swapped again"
    beside.drop()
    assert kept_for("share_holders.2") == "1 snapshot"
    age(aged, LONG)
    snapshots.drop(installed(aged.settings).tables, [2])
    assert kept_for("share_holders.2") == "nothing: the next maintenance removes it"


def test_rows_are_read_again_until_they_stand_still(
    aged: AgedTables, beside: AgedRebuilds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A swap and a drop, between two reads, would leave the tables in use unnamed."""
    beside.begin(*NAMES)
    beside.build()
    pending = [beside.swap, beside.drop]
    list_all = snapshots.list_all

    def swapped_meanwhile(tables: Tables, without: Collection[int]) -> object:
        found = list_all(tables, without)
        while pending:
            pending.pop(0)()
        return found

    monkeypatch.setattr(snapshots, "list_all", swapped_meanwhile)
    found = stored_tables.read(installed(aged.settings).tables)
    assert [one.number for one in found.snapshots] == [1, 2]
    assert found.rebuild is None
    numbers: Iterator[int] = iter(range(99))

    def changing(_tables: Tables) -> object:
        return [next(numbers)]

    monkeypatch.setattr(registry, "list_rebuilds", changing)
    with pytest.raises(ShardpostError, match="table rebuilds: changed during each of 10 reads"):
        stored_tables.read(installed(aged.settings).tables)


@pytest.mark.parametrize("seed", some(range(3), 0))
def test_random_rebuilds_with_maintenance_between_any_two_runs(
    aged: AgedTables, beside: AgedRebuilds, seed: int
) -> None:
    aged.random = random = Random(seed)  # noqa: S311
    waits = ({"minutes": 15}, {"hours": 3}, {"days": 2}, {"days": 20})

    for _ in range(up_to(16, quick=10)):
        if random.random() < 0.4:
            aged.compact()
        else:
            go_on(beside, random)
        aged.wait(**random.choices(waits, [20, 10, 5, 3])[0])
        if random.random() < 0.4:
            maintain(installed(aged.settings), aged.now)
            aged.require_all_kept()
            if beside.current:
                beside.require_readable()
    if beside.current:
        beside.drop()
    aged.compact()
    age(aged, LONG)
    maintain(installed(aged.settings), aged.now)
    aged.require_all_kept()
    newest = snapshots.current(installed(aged.settings).tables)
    assert there(aged.settings) == {newest.located(table).path for table in VIEW}
    for table in (POSITION_EVENTS, POSITIONS, SHARE_HOLDERS):
        path = newest.located(table).path
        assert data_files(aged.settings, path) == needed_files(aged.settings, table)
