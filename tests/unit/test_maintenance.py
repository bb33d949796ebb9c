"""Maintenance between any two runs and beside others: what is kept reads the same."""

import copy
import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from shardpost import tables
from shardpost.delta import parquet_files, snapshots, storage, stored_files, table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshot_retention import GRACE, kept_snapshots
from shardpost.delta.storage import Tables
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders import publishing, rejected_letters
from shardpost.holders.model.view_tables import POSITION_EVENTS, VIEW
from shardpost.holders.share_holders_topic import noted_snapshots
from shardpost.installation import Installation
from shardpost.maintenance import maintain as module
from shardpost.maintenance import removable_files
from shardpost.maintenance.maintain import maintain
from shardpost.maintenance.model.plan import Plan
from shardpost.maintenance.stored_tables import TABLES, table_sizes
from shardpost.settings import Settings
from shardpost.values.holding_rule import Rule
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import FROZEN_WEEKS, audience_table
from tests.support.aged_tables import START, AgedTables, data_files, needed_files
from tests.support.committed_snapshot import SHARDS, commit_snapshot
from tests.support.how_far import some
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.object_store import folder_of
from tests.support.written_weeks import commit_row

pytestmark = pytest.mark.also_on_store


@pytest.fixture
def aged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgedTables:
    monkeypatch.setattr(removable_files, "noted_snapshots", lambda _settings: set())
    monkeypatch.setattr(parquet_files, "FILES_PER_TIER", 4)  # files are merged within a day or two
    settings = Settings.model_validate({"home": tmp_path, "snapshot_days": 30})
    return AgedTables(settings, Random(7))  # noqa: S311


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> AgedTables:
    """Give tables of so many commits that entries of the logs go, too; they are only copied."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_files, "FILES_PER_TIER", 4)
        home = tmp_path_factory.mktemp("template")
        made = AgedTables(Settings(home=home, snapshot_days=30), Random(7))  # noqa: S311
        made.age(9)
        return made


@pytest.fixture
def old(template: AgedTables, aged: AgedTables) -> AgedTables:
    """Give a copy of those tables."""
    return _copied(template, aged.settings.home / "old")


def test_what_no_kept_snapshot_needs_is_removed_and_the_rest_reads_the_same(
    aged: AgedTables,
) -> None:
    for _ in range(27):  # nine days
        aged.compact()
        aged.wait(hours=8)
    found = maintain(installed(aged.settings), aged.now)
    assert aged.require_all_kept() == set(found.kept)
    committed = [(n, aged.now - timedelta(hours=8 * (28 - n))) for n in range(1, 28)]
    assert set(found.kept) == kept_snapshots(committed, aged.now, 30, GRACE)
    assert data_files(aged.settings) == needed_files(aged.settings)
    assert not any(maintain(installed(aged.settings), aged.now).counts().values())


def test_a_dry_run_says_what_goes_and_changes_nothing(old: AgedTables) -> None:
    before = data_files(old.settings)
    said = maintain(installed(old.settings), old.now, dry_run=True)
    assert data_files(old.settings) == before
    assert old.require_all_kept() == set(range(1, 13))
    assert maintain(installed(old.settings), old.now).as_json() == said.as_json()
    planned = {
        folder_of(old.settings, table) / file.path
        for table, one in zip(TABLES, said.tables, strict=False)
        if table in VIEW
        for file in one.files
    }
    assert planned == before - data_files(old.settings)
    assert said.dropped
    assert any(line.startswith("snapshots: ") for line in said.lines(30))


def test_a_clock_that_has_jumped_ahead_removes_nothing_of_today(aged: AgedTables) -> None:
    for _ in range(8):
        aged.compact()
        aged.wait(minutes=15)
    assert maintain(installed(aged.settings), aged.now + timedelta(days=3650)).dropped == []
    aged.wait(days=3650)
    aged.compact()
    assert maintain(installed(aged.settings), aged.now).dropped == []
    aged.wait(days=-3650)
    aged.compact()
    assert maintain(installed(aged.settings), aged.now).dropped == []
    assert aged.require_all_kept() == set(range(1, 11))


def test_what_a_run_is_writing_stays(aged: AgedTables) -> None:
    aged.compact()
    aged.compact(crash="files")
    running = data_files(aged.settings)
    aged.wait(days=900)
    maintain(installed(aged.settings), aged.now)
    assert data_files(aged.settings) == running
    aged.compact(crash="tables")
    running = data_files(aged.settings)
    aged.wait(days=900)
    maintain(installed(aged.settings), aged.now)
    assert data_files(aged.settings) == running
    aged.compact()  # from now on what they left belongs to nobody
    maintain(installed(aged.settings), aged.now)
    assert data_files(aged.settings) == needed_files(aged.settings)
    aged.require_all_kept()


def test_without_kafka_no_snapshot_goes(old: AgedTables, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_settings: Settings) -> set[int]:
        raise ShardpostError("Kafka does not answer")

    assert maintain(installed(old.settings), old.now, dry_run=True).dropped
    monkeypatch.setattr(removable_files, "noted_snapshots", refuse)
    found = maintain(installed(old.settings), old.now)
    assert (found.dropped, len(found.kept)) == ([], 12)
    assert "Kafka does not answer" in found.errors[0]
    old.require_all_kept()


def test_what_kafka_names_is_kept(aged: AgedTables, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(9):
        aged.compact()
        aged.wait(hours=6)
    monkeypatch.setattr(removable_files, "noted_snapshots", lambda _settings: {1, 2})
    strict = aged.settings.model_copy(update={"snapshot_days": 1})
    found = maintain(installed(strict), aged.now)
    assert {1, 2, 9} <= set(found.kept)
    assert 3 in found.dropped
    assert aged.require_all_kept() == set(found.kept)
    assert {*snapshots.committed_times(installed(aged.settings).tables)} == set(found.kept)


def _steps(monkeypatch: pytest.MonkeyPatch, at: int | None) -> Iterator[int]:
    """Break it off before the step of that number, if any; return what counts the steps."""
    count = itertools.count()

    def die(name: str) -> None:
        if next(count) == at:
            raise KeyboardInterrupt(name)

    monkeypatch.setattr(module, "step", die)
    return count


def _copied(aged: AgedTables, home: Path) -> AgedTables:
    shutil.copytree(aged.settings.home, home)
    copied = copy.deepcopy(aged)
    copied.settings = aged.settings.model_copy(update={"home": home})
    return copied


def test_broken_off_between_any_two_steps_it_has_only_kept_too_much(
    old: AgedTables, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("copies")
    whole = _copied(old, folder / "whole")
    count = _steps(monkeypatch, None)
    maintain(installed(whole.settings), whole.now)
    steps = next(count)
    assert steps >= 5  # snapshots, the files of three tables, the end
    for at in some(range(steps)):
        broken = _copied(old, folder / str(at))
        _steps(monkeypatch, at)
        with pytest.raises(KeyboardInterrupt):
            maintain(installed(broken.settings), broken.now)
        broken.require_all_kept()
        broken.compact()
        broken.require_all_kept()
        _steps(monkeypatch, None)
        maintain(installed(broken.settings), broken.now)
        broken.require_all_kept()
        assert data_files(broken.settings) == needed_files(broken.settings)


def test_broken_off_while_it_removes_files_all_is_readable(
    old: AgedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = stored_files.remove
    for left in some((0, 1, 7)):
        removed = itertools.count()

        def remove(tables: Tables, table: Table, paths: Iterable[str]) -> None:
            for path in paths:
                if next(removed) == left:  # noqa: B023 - called in this round
                    raise KeyboardInterrupt
                own(tables, table, [path])

        with monkeypatch.context() as patch:
            patch.setattr(stored_files, "remove", remove)
            with pytest.raises(KeyboardInterrupt):
                maintain(installed(old.settings), old.now)
        old.require_all_kept()
        old.compact()
    maintain(installed(old.settings), old.now)
    old.require_all_kept()
    assert data_files(old.settings) == needed_files(old.settings)


def test_sizes_say_what_keeps_a_table(aged: AgedTables) -> None:
    for _ in range(3):
        aged.compact()
    found = {size.table: size for size in table_sizes(installed(aged.settings).tables)}
    history = found[POSITION_EVENTS.name]
    assert (history.files, history.versions, history.kept_for) == (3, 3, "3 snapshots")
    assert history.rows == len(aged.expected[3][POSITION_EVENTS.name])
    assert history.bytes > 3000
    assert found["snapshots"].kept_for == "its newest version"


def test_a_plan_says_all_in_words() -> None:
    plan = Plan(
        kept=[1, 9], dropped=[2, 3, 4, 7], pinned={1: "the audience of 2026-W01 is frozen from it"}
    )
    lines = plan.lines(90)
    assert "snapshots: 4 no longer kept: 2-4, 7" in lines
    assert "snapshot 1: the audience of 2026-W01 is frozen from it" in lines


KAFKA = {"partitions": SHARDS}


def test_an_audience_that_is_being_frozen_stays(aged: AgedTables) -> None:
    settings = aged.settings
    aged.compact()

    def written(week: str, *, is_running: bool = False) -> Path:
        at, table = installed(settings).tables, audience_table(week)
        storage.create(at, table, 1)
        data = pa.Table.from_pylist([{"client": week, "week": week}], arrow_schema(table))
        action = parquet_files.write(at, table, data, "1/group=0/a.parquet")
        if not is_running:
            table_log.commit(at, table, 0, [action])
            _freeze(settings, week)
        return folder_of(settings, table) / action.path

    weeks = ("2026-W01", "2026-W02")
    kept = [*map(written, weeks), written("2026-W03", is_running=True)]
    for days in (1, 900):
        aged.wait(days=days)
        maintain(installed(settings), aged.now)
    assert [path for path in kept if not path.exists()] == []
    for week in weeks:
        found = rows(
            installed(settings).tables, "SELECT client FROM audiences", {audience_table(week): None}
        )
        assert found == [{"client": week}]


def _freeze(settings: Settings, week: str) -> None:
    number = snapshots.current(installed(settings).tables).number
    commit_row(settings, FrozenWeek(week, week, number, START, START, 2, 1, Rule("US")))


def test_what_was_never_committed_of_an_audience_goes_a_day_before_the_last_freeze(
    aged: AgedTables,
) -> None:
    settings = aged.settings
    aged.compact()
    at, table = installed(settings).tables, audience_table("2026-W01")
    storage.create(at, table, 1)
    data = pa.Table.from_pylist([{"client": "c", "week": "2026-W01"}], arrow_schema(table))
    paths = [f"{name}/group=0/a.parquet" for name in ("frozen", "killed")]
    frozen, _ = [parquet_files.write(at, table, data, path) for path in paths]
    table_log.commit(at, table, 0, [frozen])
    _freeze(settings, "2026-W01")

    def maintained() -> list[bool]:
        aged.wait(days=900)  # the clock has jumped
        assert maintain(installed(settings), aged.now).errors == []
        return [(folder_of(settings, table) / path).exists() for path in paths]

    for old in (table, FROZEN_WEEKS):
        files = [path for path in folder_of(settings, old).rglob("*") if path.is_file()]
        for path in files:
            os.utime(path, (path.stat().st_mtime - 48 * 3600,) * 2)
    assert maintained() == [True, True]
    _freeze(settings, "2026-W02")
    assert maintained() == [True, False]


def test_the_snapshot_of_a_frozen_week_is_read_and_stays_while_somebody_may_read_it(
    aged: AgedTables,
) -> None:
    aged.compact()
    _freeze(aged.settings, "2026-W01")
    for _ in range(6):
        aged.wait(hours=12)
        aged.compact()
    strict = aged.settings.model_copy(update={"snapshot_days": 1})
    found = maintain(installed(strict), aged.now)
    assert found.pinned == {1: "the audience of 2026-W01 is frozen from it"}
    assert 2 in found.dropped
    assert 1 in aged.require_all_kept()
    given = tables.snapshot(1, strict)
    assert aged.view(given) == aged.expected[1]
    with pytest.raises(ShardpostError, match=r"snapshot 2 .* nearest kept snapshots: 1 and "):
        tables.snapshot(2, strict)
    erased_at = aged.now
    FrozenWeeks(installed(strict).tables).mark_erased(IsoWeek(2026, 1), erased_at)
    with pytest.raises(ShardpostError, match=r"snapshot 1 .* is no longer kept"):
        tables.snapshot(1, strict)
    for minutes in (0, 60):  # who was given it just before reads on
        found = maintain(installed(strict), erased_at + timedelta(minutes=minutes))
        assert found.pinned == {1: "the audience of 2026-W01 was frozen from it"}
        assert aged.view(given) == aged.expected[1]
    assert 1 in maintain(installed(strict), erased_at + timedelta(hours=2)).dropped


def test_a_disk_that_has_room_once_files_are_gone_is_thinned_at_once(
    aged: AgedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged.age_and_die_thinning()
    before, written = len(data_files(aged.settings)), parquet_files.rewrite

    def write(*given: Any) -> Any:
        if len(data_files(aged.settings)) == before:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(*given)

    monkeypatch.setattr(parquet_files, "rewrite", write)
    found = maintain(installed(aged.settings), aged.now)
    assert found.errors == []
    assert found.dropped
    assert aged.require_all_kept() == set(found.kept)
    assert not any(maintain(installed(aged.settings), aged.now).counts().values())


@pytest.mark.parametrize("write", [publishing.publish, rejected_letters.send])
def test_what_was_published_and_whose_letters_were_sent_is_what_kafka_names(
    kafka: MemoryKafka, write: Callable[[Installation, Snapshot], object]
) -> None:
    made = commit_snapshot(kafka, client1=["1"])
    assert noted_snapshots(installed(kafka.settings)) == set()
    write(installed(kafka.settings), made)
    assert noted_snapshots(installed(kafka.settings)) == {1}


def test_a_table_whose_kept_versions_cannot_be_read_is_left_alone(aged: AgedTables) -> None:
    """As Delta's own clean-up of logs left some in older releases."""
    for _ in range(14):
        aged.compact()
        aged.wait(hours=13)
    log = folder_of(aged.settings, POSITION_EVENTS) / "_delta_log"
    (log / f"{1:020d}.json").unlink()
    before = {*log.parent.rglob("*.parquet")}
    found = maintain(installed(aged.settings), aged.now)
    [error] = found.errors
    assert error.startswith("position_events: nothing removed: ")
    assert {*log.parent.rglob("*.parquet")} == before
