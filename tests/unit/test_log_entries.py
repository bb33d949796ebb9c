"""What versions of a table need, and removing entries of its log: what is kept can be opened."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from deltalake.transaction import AddAction

from shardpost.delta import storage, stored_files, table_log
from shardpost.delta.table import Table, columns
from shardpost.errors import ShardpostError
from shardpost.maintenance.model.plan import NeededFiles, unneeded_entries
from shardpost.maintenance.removable_files import needed_paths
from shardpost.settings import Settings
from tests.support.how_far import drawn, some
from tests.support.installed import installed
from tests.support.object_store import folder_of

pytestmark = pytest.mark.also_on_store

TABLE = Table("things", columns("number BIGINT"))
LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    storage.create(installed(settings).tables, TABLE, 30)
    return settings


def grow(settings: Settings, versions: int) -> int:
    """Commit versions, each with one file more, some of them removed later."""
    before = storage.newest_version(installed(settings).tables, TABLE) or 0
    for version in range(before, before + versions):
        stats = json.dumps({"numRecords": 1})
        added = [AddAction(f"{version + 1:08d}-a/f.parquet", 1, {}, 1, True, stats)]
        removed = [f"{version - 4:08d}-a/f.parquet"] if version >= 5 else []
        table_log.commit(installed(settings).tables, TABLE, version, added, removed)
    return before + versions


def paths(settings: Settings, version: int | None = None) -> set[str]:
    table = storage.opened(installed(settings).tables, TABLE, version)
    return set(storage.sizes(installed(settings).tables, TABLE, table.version()))


def log(settings: Settings) -> set[str]:
    return {file.path for file in stored_files.stored_files(installed(settings).tables, TABLE)}


@pytest.mark.parametrize("seed", drawn(range(8)))
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
        gone = unneeded_entries(
            stored_files.stored_files(installed(settings).tables, TABLE), kept, LATER
        )
        for file in gone:
            stored_files.remove(installed(settings).tables, TABLE, [file.path])
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
    files = stored_files.stored_files(installed(settings).tables, TABLE)
    [newest] = [file for file in files if "29.checkpoint" in file.path]
    older = [  # a store's times are of whole seconds
        replace(file, at=file.at - timedelta(seconds=1)) for file in files if file is not newest
    ]
    before = newest.at - timedelta(microseconds=1)
    assert unneeded_entries([*older, newest], [], files[0].at - timedelta(days=1)) == []
    assert unneeded_entries([*older, newest], [], before) == unneeded_entries(older, [], LATER)


def test_the_next_commits_go_on_after_what_was_removed(settings: Settings) -> None:
    newest = grow(settings, 40)
    files = stored_files.stored_files(installed(settings).tables, TABLE)
    gone = unneeded_entries(files, [], LATER)
    stored_files.remove(installed(settings).tables, TABLE, [file.path for file in gone])
    assert len(log(settings)) <= 5
    assert grow(settings, 15) == newest + 15
    assert len(paths(settings)) == 5


GROWN = Table("grown", columns("n BIGINT"))


def grow_at_random(settings: Settings, random: Random, versions: int) -> None:
    """Add, remove, add again and restore; every tenth version has a checkpoint."""
    gone: set[str] = set()
    storage.create(installed(settings).tables, GROWN, 1)
    for _ in range(versions):
        version = storage.newest_version(installed(settings).tables, GROWN)
        assert version is not None
        if version and random.random() < 0.1:
            table_log.restore(
                installed(settings).tables, GROWN, random.randint(max(0, version - 15), version - 1)
            )
            continue
        there = sorted(storage.sizes(installed(settings).tables, GROWN, version))
        old = random.sample(there, random.randint(0, min(3, len(there))))
        not_there = sorted(gone - {*there})
        again = random.sample(not_there, min(len(not_there), random.choice([0, 0, 1])))
        new = [f"{version + 1:08d}-run/{n}.parquet" for n in range(random.randint(1, 3))]
        for path in new:
            file = Path(folder_of(settings, GROWN), path)
            file.parent.mkdir(exist_ok=True)
            file.touch()
        added = [AddAction(path, 1, {}, 0, True, "{}") for path in [*new, *again]]
        table_log.commit(installed(settings).tables, GROWN, version, added, old)
        gone = (gone | {*old}) - {*again}


def one_by_one(settings: Settings, versions: list[int]) -> set[str]:
    """Return the same by opening each version."""
    return {
        path
        for version in versions
        for path in storage.sizes(installed(settings).tables, GROWN, version)
    }


def found(settings: Settings, versions: list[int]) -> set[str]:
    return needed_paths(
        installed(settings).tables,
        GROWN,
        stored_files.stored_files(installed(settings).tables, GROWN),
        versions,
    )


@pytest.mark.parametrize("seed", some(range(4), 0))
def test_any_versions_of_any_history(settings: Settings, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    grow_at_random(settings, random, 45)
    newest = storage.newest_version(installed(settings).tables, GROWN)
    assert newest is not None
    for count in (0, 1, 2, 5, 20, newest + 1):
        versions = random.sample(range(newest + 1), count)
        assert found(settings, versions) == one_by_one(settings, versions), versions


@pytest.mark.parametrize("seed", some(range(3), 0))
def test_a_log_of_which_the_maintenance_has_left_what_is_kept(
    settings: Settings, seed: int
) -> None:
    random = Random(seed)  # noqa: S311
    grow_at_random(settings, random, 45)
    newest = storage.newest_version(installed(settings).tables, GROWN)
    assert newest is not None
    log = Path(folder_of(settings, GROWN), "_delta_log")
    checkpoints = {int(file.name[:20]): file for file in log.glob("*.checkpoint.parquet")}
    kept = sorted({newest, *random.sample(range(min(checkpoints), newest), 4)})
    starts = [max(one for one in checkpoints if one <= version) for version in kept]
    for file in log.glob("*.json"):
        version = int(file.stem)
        if not any(start < version <= one for start, one in zip(starts, kept, strict=True)):
            file.unlink()
    for version in {*checkpoints} - {*starts}:
        checkpoints[version].unlink()
    assert found(settings, kept) == one_by_one(settings, kept)


def test_a_commit_that_is_missing_or_broken_is_said(settings: Settings) -> None:
    grow_at_random(settings, Random(1), 9)  # noqa: S311
    log = Path(folder_of(settings, GROWN), "_delta_log")
    file = log / f"{4:020d}.json"
    text = file.read_text()
    file.write_text(text[: len(text) // 2])
    with pytest.raises(ShardpostError, match="log of grown cannot be read at version 4"):
        found(settings, [5])
    file.unlink()
    with pytest.raises(ShardpostError, match="log of grown lacks version 4"):
        found(settings, [5])
    assert found(settings, [3]) == one_by_one(settings, [3])


def test_a_log_that_says_another_thing_than_the_opened_table_is_not_trusted(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow_at_random(settings, Random(1), 3)  # noqa: S311
    monkeypatch.setattr(storage, "sizes_of", lambda _: {"another.parquet": 1})
    with pytest.raises(ShardpostError, match=r"the log has .* for version 3"):
        found(settings, [3])


def test_a_version_that_was_opened_is_not_opened_again_and_is_taken_for_no_other(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow_at_random(settings, Random(1), 12)  # noqa: S311
    files, newest = (
        stored_files.stored_files(installed(settings).tables, GROWN),
        storage.opened(installed(settings).tables, GROWN),
    )
    for versions in ([3, 7], [3, newest.version()]):
        expected = one_by_one(settings, versions)
        assert needed_paths(installed(settings).tables, GROWN, files, versions, newest) == expected
    monkeypatch.setattr("deltalake.DeltaTable", None)
    assert needed_paths(installed(settings).tables, GROWN, files, versions, newest) == expected


def test_a_file_is_needed_by_a_version_that_has_it_and_by_no_other() -> None:
    log = [
        (["a"], []),
        (["b"], ["a"]),
        (["a"], ["b"]),
        ([], ["a"]),
    ]
    wanted = [{"a"}, {"b"}, {"a"}, set[str]()]
    for version, expected in enumerate(wanted):
        needed = NeededFiles([version])
        for number, (added, removed) in enumerate(log[: version + 1]):
            needed.commit(number, added, removed)
        assert needed.end() == expected, log[version]
