"""Histories that are pruned: at random, by `tables maintain`, and read all the while."""

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest

from shardpost.delta import parquet_files, snapshots, storage
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import ShardpostError
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.model.view_tables import POSITION_EVENTS, VIEW
from shardpost.locks.locks import exclusive
from shardpost.maintenance import maintain as maintain_module
from shardpost.maintenance import removable_files
from shardpost.maintenance.maintain import maintain, maintain_all, prune_old
from shardpost.maintenance.stored_tables import table_sizes
from shardpost.rebuilds.rebuild_job import Action, RebuildRequest
from shardpost.rebuilds.registry import rebuilding
from shardpost.rebuilds.run import begun
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.wording import json_text
from tests.support.aged_rebuilds import drop_open
from tests.support.aged_tables import AgedTables
from tests.support.appended_histories import AppendedHistories
from tests.support.at_step import at_step
from tests.support.command_line import CommandLine
from tests.support.histories import START, Batch, country_of, put
from tests.support.how_far import drawn, some, up_to
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka, memory_kafka

pytestmark = pytest.mark.also_on_store

READERS = up_to(50, quick=2)


@pytest.fixture
def aged(tmp_path: Path) -> Iterator[AgedTables]:
    with home(tmp_path) as found:
        yield found


@contextmanager
def home(folder: Path, **given: Any) -> Iterator[AgedTables]:
    with (
        memory_kafka(home=folder, snapshot_days=30, history_days=1, **given) as kafka,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(removable_files, "noted_snapshots", lambda _settings: set())
        patch.setattr(parquet_files, "FILES_PER_TIER", 4)  # files are merged within a day or two
        apply_topics(installed(kafka.settings))
        yield AgedTables(kafka.settings, Random(7), fold_share=0.5)  # noqa: S311


def offered(aged: AgedTables) -> set[int]:
    """Return snapshots that a reader is given now."""
    found = set()
    for number in drawn([*aged.expected], 6):
        with suppress(ShardpostError):
            found.add(snapshots.get(installed(aged.settings).tables, number, now=aged.now).number)
    return found


@pytest.mark.parametrize("is_pruned", drawn([True, False]))
@pytest.mark.parametrize("seed", some(range(3), 0))
def test_random_histories_with_prunings_and_maintenance_between_any_two_runs(
    aged: AgedTables, seed: int, is_pruned: bool
) -> None:
    aged.random = random = Random(seed)  # noqa: S311
    waits = ({"minutes": 15}, {"hours": 5}, {"days": 2}, {"days": 400}, {"days": -300})
    pruned = 0
    for _ in range(up_to(20, quick=12)):
        aged.compact(crash=random.choice([None, None, None, "files", "tables"]))
        aged.wait(**random.choices(waits, [10, 20, 10, 1, 1])[0])
        if is_pruned and random.random() < 0.6:
            pruned += aged.prune()
            newest = snapshots.current(installed(aged.settings).tables)
            aged.require_answers(newest, [None, newest.history_from])
        if random.random() < 0.4:
            read = offered(aged)
            maintain(installed(aged.settings), aged.now)
            assert read <= aged.require_all_kept()
    assert pruned or not is_pruned
    for table in VIEW:
        assert storage.newest_version(installed(aged.settings).tables, table) is not None
    aged.compact()
    aged.require_all_kept()
    *kept, newest = snapshots.list_all(installed(aged.settings).tables)
    aged.require_answers(newest, drawn(aged.instants(newest), 9))
    for snapshot in drawn(kept, 4):
        times = aged.instants(snapshot)
        aged.require_answers(snapshot, random.sample(times, min(up_to(5, quick=2), len(times))))


def test_readers_beside_prunings_and_maintenance_never_see_a_hole(aged: AgedTables) -> None:
    aged.age(4)
    ended = Event()

    def chosen(number: int) -> Iterator[Snapshot]:
        """Yield the newest, or of all that may be asked for the one that goes first."""
        while not ended.is_set():
            yield snapshots.current(installed(aged.settings).tables)
            for one in [*aged.expected] if number % 2 else ():
                with suppress(ShardpostError):
                    yield snapshots.get(installed(aged.settings).tables, one, now=aged.now)
                    break

    def read(number: int) -> int:
        count = 0
        for count, snapshot in enumerate(chosen(number), 1):
            times = aged.instants(snapshot)
            aged.require_answers(snapshot, [times[-count % len(times)]])
            if expected := aged.expected.get(snapshot.number):
                assert aged.view(snapshot) == expected
        return count

    with ThreadPoolExecutor(READERS) as pool:
        readers = [pool.submit(read, number) for number in range(READERS)]
        pruned = 0
        try:
            for _ in range(3):
                aged.compact()
                pruned += aged.prune()
                maintain(installed(aged.settings), aged.now)
                # Who is reading now was offered what he reads: his hour is not over.
                aged.wait(minutes=55)
        finally:
            ended.set()
        assert all(reader.result() > 0 for reader in readers)
    assert pruned


def test_tables_behind_a_url_are_listed_pruned_thinned_and_removed(tmp_path: Path) -> None:
    root = tmp_path / "tables at another place"
    with home(tmp_path / "home", tables=root.as_uri()) as aged:
        aged.age(6)
        files = {*on_disk(root)}
        assert aged.prune()
        [size] = [
            one
            for one in table_sizes(installed(aged.settings).tables)
            if one.table == POSITION_EVENTS.name
        ]
        assert (size.files, size.kept_for) == (len({*on_disk(root)}), "10 snapshots")
        planned = maintain(installed(aged.settings), aged.now, dry_run=True)
        assert planned.errors == []
        assert planned.dropped
        found = maintain(installed(aged.settings), aged.now)
        assert found.as_json() == planned.as_json()
        assert files - {*on_disk(root)}
        assert aged.require_all_kept() == set(found.kept)
        assert {*on_disk(root)} == needed(aged.settings)
        assert not (tmp_path / "home" / "tables").exists()
        aged.compact()
        newest = snapshots.current(installed(aged.settings).tables)
        aged.require_answers(newest, aged.instants(newest))


def needed(settings: Settings) -> set[str]:
    """Return the files of the history that kept snapshots name."""
    versions = (
        one.tables[POSITION_EVENTS.name] for one in snapshots.list_all(installed(settings).tables)
    )
    return {
        path
        for one in versions
        for path in storage.sizes(installed(settings).tables, POSITION_EVENTS, one)
    }


def on_disk(root: Path) -> Iterator[str]:
    """Yield the data files of the history, by their paths in the table."""
    table = root / POSITION_EVENTS.name
    for path in table.rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            yield str(path.relative_to(table))


KAFKA = {"history_days": 1, "lock_wait": 0.1}


@pytest.fixture
def at(kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Give a home of three days, of whose first day one record is superseded."""
    monkeypatch.setattr(removable_files, "noted_snapshots", lambda _settings: set())
    world = AppendedHistories(kafka.settings)
    world.compact(Batch([put("a", "c1", "NASDAQ", 1)], [country_of("NASDAQ", "US")]))
    world.compact(Batch([put("a", "c2", "NASDAQ", 2)]))
    world.compact(Batch([put("a", "c3", "NASDAQ", 60)]))
    return kafka.settings


NOW = START + timedelta(days=3, hours=1)


def test_a_dry_run_says_how_much_would_go(at: Settings) -> None:
    said = prune_old(installed(at), NOW, dry_run=True)
    assert said.rows == {"position_events": 1}
    assert said.history_from == NOW - timedelta(days=1)
    assert said.bytes > 0
    assert "1 of position_events would be deleted from the histories, superseded" in said.lines()[0]
    assert snapshots.current(installed(at).tables).number == 3


def test_it_is_pruned_once_and_the_snapshot_says_from_when(at: Settings) -> None:
    done = maintain_all(installed(at), NOW)
    assert done.errors == []
    assert json.loads(json_text(done.as_json()))["records"]["rows"] == {"position_events": 1}
    newest = snapshots.current(installed(at).tables)
    assert (newest.number, newest.history_from) == (4, NOW - timedelta(days=1))
    assert maintain_all(installed(at), NOW).lines(90)[-1]
    assert snapshots.current(installed(at).tables) == newest


def test_beside_a_compaction_that_goes_on_it_is_left_to_the_next_time(at: Settings) -> None:
    with exclusive(installed(at).files, COMPACT_POSITIONS.name, "x"):
        done = maintain_all(installed(at), NOW)
    assert "is already running" in done.errors[0]
    assert snapshots.current(installed(at).tables).number == 3


def test_a_clock_that_is_ahead_prunes_no_more_than_a_day_of_it(at: Settings) -> None:
    said = prune_old(installed(at), NOW + timedelta(days=3650), dry_run=True)
    assert said.history_from == START + timedelta(days=3)


def test_snapshots_that_frozen_weeks_keep_do_not_hold_the_horizon_back(at: Settings) -> None:
    """Of the seven days between two of them a day would count."""
    young = at.model_copy(update={"snapshot_days": 5})
    last, weeks, days = snapshots.current(installed(at).tables), range(1, 21), range(1, 7)
    times = [last.committed_at + timedelta(weeks=week) for week in weeks]
    times += [times[-1] + timedelta(days=day) for day in days]
    for number, time in enumerate(times, last.number + 1):
        snapshots.commit(installed(at).tables, replace(last, number=number, committed_at=time))
    said = prune_old(installed(young), times[-1], dry_run=True)
    assert said.history_from == times[-1] - timedelta(days=1)


def test_while_a_rebuild_is_open_it_is_left_to_the_next_time(at: Settings) -> None:
    order = RebuildRequest(Action.START, "tester", country="US", tables=("share_holders",))
    begun(installed(at), order)
    said, done = (maintain_all(installed(at), NOW, dry_run=dry_run) for dry_run in (True, False))
    assert said.errors == done.errors
    expected = "old superseded records are kept: not possible while rebuild 2 has"
    assert expected in done.errors[0]
    assert any("would be deleted from the histories" in line for line in done.lines(90))
    assert snapshots.current(installed(at).tables).history_from is None
    with rebuilding(installed(at).files):
        assert (
            "a run of the rebuild is already running" in maintain_all(installed(at), NOW).errors[0]
        )
    drop_open(installed(at).tables)
    assert maintain_all(installed(at), NOW).errors == []
    assert snapshots.current(installed(at).tables).history_from == NOW - timedelta(days=1)


def test_what_was_found_before_a_swap_is_not_pruned_of_the_tables_after_it(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = snapshots.current(installed(at).tables)
    swapped = replace(last, number=last.number + 1, rebuilt_in=last.number + 1)
    hook = at_step(monkeypatch, maintain_module)
    hook("find old records", lambda: snapshots.commit(installed(at).tables, swapped))
    assert (
        f"tables were swapped since snapshot {last.number}"
        in maintain_all(installed(at), NOW).errors[0]
    )
    assert snapshots.current(installed(at).tables) == swapped
    assert maintain_all(installed(at), NOW).errors == []
    assert snapshots.current(installed(at).tables).history_from == NOW - timedelta(days=1)


def test_a_rebuild_that_begins_says_up_to_when_its_histories_are_pruned(
    at: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shardpost.rebuilds.run")
    order = RebuildRequest(Action.START, "tester", country="US", tables=("share_holders",))
    begun(installed(at), order)
    assert "pruned" not in caplog.text
    drop_open(installed(at).tables)
    maintain_all(installed(at), NOW)
    begun(installed(at), order)
    assert f"pruned up to {NOW - timedelta(days=1):%Y-%m-%d %H:%M} UTC: " in caplog.text


def test_unless_it_is_told_nothing_goes(at: Settings) -> None:
    for_good = at.model_copy(update={"history_days": None})
    assert "records" not in maintain_all(installed(for_good), NOW).as_json()
    assert snapshots.current(installed(at).tables).history_from is None


def test_the_command_prints_it(shardpost: CommandLine) -> None:
    document = shardpost.json("tables", "maintain", "--dry-run")
    assert set(document["records"]) == {"history_from", "rows", "bytes", "postponed"}
