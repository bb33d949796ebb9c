"""Removing entries of a table's log: what is kept can be opened at every moment."""

import json
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from shardpost.delta import stored_files, table_log
from shardpost.delta.query import path_of
from shardpost.delta.table import Table, columns
from shardpost.maintenance.model.needed_files import unneeded_entries
from shardpost.settings import Settings
from tests.support.how_far import some

TABLE = Table("things", columns("number BIGINT"))
LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    table_log.create(settings, TABLE, 30)
    return settings


def grow(settings: Settings, versions: int) -> int:
    """Commit versions, each with one file more, some of them removed later."""
    before = table_log.newest_version(settings, TABLE) or 0
    for version in range(before, before + versions):
        stats = json.dumps({"numRecords": 1})
        added = [AddAction(f"{version + 1:08d}-a/f.parquet", 1, {}, 1, True, stats)]
        removed = [f"{version - 4:08d}-a/f.parquet"] if version >= 5 else []
        table_log.commit(settings, TABLE, version, added, removed)
    return before + versions


def paths(settings: Settings, version: int | None = None) -> set[str]:
    table = DeltaTable(path_of(settings, TABLE), version=version)
    return set(table_log.sizes(settings, TABLE, table.version()))


def log(settings: Settings) -> set[str]:
    return {file.path for file in stored_files.stored_files(settings, TABLE)}


@pytest.mark.parametrize("seed", some(range(8)))
def test_every_kept_version_opens_at_every_moment(settings: Settings, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    kept: set[int] = set()
    expected: dict[int, set[str]] = {}
    for _ in range(3):
        newest = grow(settings, random.randint(1, 45))
        kept = {version for version in kept if random.random() < 0.7}
        known = set(expected) | set(range(max(expected, default=0), newest + 1))
        kept |= set(
            random.sample(sorted(known & _readable(settings, known)), 3 if newest > 3 else 1)
        )
        expected = {version: paths(settings, version) for version in {*kept, newest}}
        gone = unneeded_entries(stored_files.stored_files(settings, TABLE), kept, LATER)
        for file in gone:
            stored_files.remove(settings, TABLE, [file.path])
            if random.random() < 0.2:
                assert paths(settings) == expected[newest]
        assert {version: paths(settings, version) for version in expected} == expected
        if newest > 30:
            assert len(log(settings)) <= 11 * (len(kept) + 2)


def _readable(settings: Settings, versions: set[int]) -> set[int]:
    found = set()
    for version in versions:
        try:
            paths(settings, version)
        except Exception:  # noqa: S112 - whatever it raises
            continue
        found.add(version)
    return found


def test_a_checkpoint_that_a_reader_may_not_have_seen_is_not_relied_on(settings: Settings) -> None:
    grow(settings, 35)
    files = stored_files.stored_files(settings, TABLE)
    [newest] = [file for file in files if "29.checkpoint" in file.path]
    before = newest.at - timedelta(microseconds=1)
    assert unneeded_entries(files, [], files[0].at - timedelta(days=1)) == []
    older = [file for file in files if file is not newest]
    assert unneeded_entries(files, [], before) == unneeded_entries(older, [], LATER)


def test_the_next_commits_go_on_after_what_was_removed(settings: Settings) -> None:
    newest = grow(settings, 40)
    files = stored_files.stored_files(settings, TABLE)
    gone = unneeded_entries(files, [], LATER)
    stored_files.remove(settings, TABLE, [file.path for file in gone])
    assert len(log(settings)) <= 5
    assert grow(settings, 15) == newest + 15
    assert len(paths(settings)) == 5
