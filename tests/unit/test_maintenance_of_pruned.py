"""Histories that are pruned between any two runs, maintained, and read all the while."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest

from shardpost.delta import parquet_files, snapshots, table_log
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import POSITION_EVENTS, VIEW
from shardpost.maintenance import planning
from shardpost.maintenance.maintain import maintain
from shardpost.maintenance.table_sizes import table_sizes
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.aged_tables import AgedTables
from tests.support.how_far import some, up_to
from tests.support.memory_kafka import memory_kafka

READERS = up_to(50, quick=4)


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
        patch.setattr(planning, "noted_snapshots", lambda _settings: set())
        patch.setattr(parquet_files, "FILES_PER_TIER", 4)  # files are merged within a day or two
        apply_topics(kafka.settings)
        yield AgedTables(kafka.settings, Random(7), fold_share=0.5)  # noqa: S311


def offered(aged: AgedTables) -> set[int]:
    """Return the snapshots that a reader is given now."""
    found = set()
    for number in aged.expected:
        with suppress(ShardpostError):
            found.add(snapshots.get(aged.settings, number, now=aged.now).number)
    return found


@pytest.mark.parametrize("is_pruned", [True, False])
@pytest.mark.parametrize("seed", some(range(3), 0))
def test_random_histories_with_prunings_and_maintenance_between_any_two_runs(
    aged: AgedTables, seed: int, is_pruned: bool
) -> None:
    aged.random = random = Random(seed)  # noqa: S311
    waits = ({"minutes": 15}, {"hours": 5}, {"days": 2}, {"days": 400}, {"days": -300})
    pruned = 0
    for _ in range(20):
        aged.compact(crash=random.choice([None, None, None, "files", "tables"]))
        aged.wait(**random.choices(waits, [10, 20, 10, 1, 1])[0])
        if is_pruned and random.random() < 0.6:
            pruned += aged.prune()
            newest = snapshots.current(aged.settings)
            aged.require_answers(newest, [None, newest.history_from])
        if random.random() < 0.4:
            read = offered(aged)
            maintain(aged.settings, aged.now)
            assert read <= aged.require_all_kept()
    assert pruned >= 2 or not is_pruned
    for table in VIEW:
        assert table_log.newest_version(aged.settings, table) is not None
    aged.compact()
    aged.require_all_kept()
    *kept, newest = snapshots.list_all(aged.settings)
    aged.require_answers(newest, aged.instants(newest))
    for snapshot in kept:
        times = aged.instants(snapshot)
        aged.require_answers(snapshot, random.sample(times, min(up_to(5, quick=2), len(times))))


def test_readers_beside_prunings_and_maintenance_never_see_a_hole(aged: AgedTables) -> None:
    aged.age(4)
    ended = Event()

    def chosen(number: int) -> Iterator[Snapshot]:
        """Yield the newest, or of all that may be asked for the one that goes first."""
        while not ended.is_set():
            yield snapshots.current(aged.settings)
            for one in [*aged.expected] if number % 2 else ():
                with suppress(ShardpostError):
                    yield snapshots.get(aged.settings, one, now=aged.now)
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
                maintain(aged.settings, aged.now)
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
        [size] = [one for one in table_sizes(aged.settings) if one.table == POSITION_EVENTS.name]
        assert (size.files, size.kept_for) == (len({*on_disk(root)}), "10 snapshots")
        planned = maintain(aged.settings, aged.now, dry_run=True)
        assert planned.errors == []
        assert planned.dropped
        found = maintain(aged.settings, aged.now)
        assert found.as_json() == planned.as_json()
        assert files - {*on_disk(root)}
        assert aged.require_all_kept() == set(found.kept)
        assert {*on_disk(root)} == needed(aged.settings)
        assert not (tmp_path / "home" / "tables").exists()
        aged.compact()
        newest = snapshots.current(aged.settings)
        aged.require_answers(newest, aged.instants(newest))


def needed(settings: Settings) -> set[str]:
    """Return the files of the history that kept snapshots name."""
    versions = (one.tables[POSITION_EVENTS.name] for one in snapshots.list_all(settings))
    return {path for one in versions for path in table_log.sizes(settings, POSITION_EVENTS, one)}


def on_disk(root: Path) -> Iterator[str]:
    """Yield the data files of the history, by their paths in the table."""
    table = root / POSITION_EVENTS.name
    for path in table.rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            yield str(path.relative_to(table))
