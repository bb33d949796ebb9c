"""What versions need, by one pass over a log, is what they have when they are opened."""

from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from shardpost.delta import table_log
from shardpost.delta.query import path_of
from shardpost.delta.stored_files import stored_files
from shardpost.delta.table import Table, columns
from shardpost.errors import ShardpostError
from shardpost.maintenance import planning as module
from shardpost.maintenance.model.needed_files import NeededFiles
from shardpost.maintenance.planning import needed_paths
from shardpost.settings import Settings
from tests.support.how_far import some

TABLE = Table("grown", columns("n BIGINT"))


@pytest.fixture
def settings(settings: Settings) -> Settings:
    table_log.create(settings, TABLE, 1)
    return settings


def grow(settings: Settings, random: Random, versions: int) -> None:
    """Add, remove, add again and restore; every tenth version has a checkpoint."""
    gone: set[str] = set()
    for _ in range(versions):
        version = table_log.newest_version(settings, TABLE)
        assert version is not None
        if version and random.random() < 0.1:
            table_log.restore(settings, TABLE, random.randint(max(0, version - 15), version - 1))
            continue
        there = sorted(table_log.sizes(settings, TABLE, version))
        old = random.sample(there, random.randint(0, min(3, len(there))))
        not_there = sorted(gone - {*there})
        again = random.sample(not_there, min(len(not_there), random.choice([0, 0, 1])))
        new = [f"{version + 1:08d}-run/{n}.parquet" for n in range(random.randint(1, 3))]
        for path in new:
            file = Path(path_of(settings, TABLE), path)
            file.parent.mkdir(exist_ok=True)
            file.touch()
        added = [AddAction(path, 1, {}, 0, True, "{}") for path in [*new, *again]]
        table_log.commit(settings, TABLE, version, added, old)
        gone = (gone | {*old}) - {*again}


def one_by_one(settings: Settings, versions: list[int]) -> set[str]:
    """Return the same by opening each version."""
    return {path for version in versions for path in table_log.sizes(settings, TABLE, version)}


def found(settings: Settings, versions: list[int]) -> set[str]:
    return needed_paths(settings, TABLE, stored_files(settings, TABLE), versions)


@pytest.mark.parametrize("seed", some(range(4), 0))
def test_any_versions_of_any_history(settings: Settings, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    grow(settings, random, 45)
    newest = table_log.newest_version(settings, TABLE)
    assert newest is not None
    for count in (0, 1, 2, 5, 20, newest + 1):
        versions = random.sample(range(newest + 1), count)
        assert found(settings, versions) == one_by_one(settings, versions), versions


@pytest.mark.parametrize("seed", some(range(3), 0))
def test_a_log_of_which_the_maintenance_has_left_what_is_kept(
    settings: Settings, seed: int
) -> None:
    random = Random(seed)  # noqa: S311
    grow(settings, random, 45)
    newest = table_log.newest_version(settings, TABLE)
    assert newest is not None
    log = Path(path_of(settings, TABLE), "_delta_log")
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
    grow(settings, Random(1), 9)  # noqa: S311
    log = Path(path_of(settings, TABLE), "_delta_log")
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
    grow(settings, Random(1), 3)  # noqa: S311
    monkeypatch.setattr(table_log, "sizes_of", lambda _: {"another.parquet": 1})
    with pytest.raises(ShardpostError, match="by its log, version 3 has"):
        found(settings, [3])


def test_a_version_that_was_opened_is_not_opened_again_and_is_taken_for_no_other(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(settings, Random(1), 12)  # noqa: S311
    files, newest = stored_files(settings, TABLE), DeltaTable(path_of(settings, TABLE))
    for versions in ([3, 7], [3, newest.version()]):
        expected = one_by_one(settings, versions)
        assert needed_paths(settings, TABLE, files, versions, newest) == expected
    monkeypatch.setattr(module, "DeltaTable", None)
    assert needed_paths(settings, TABLE, files, versions, newest) == expected


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
