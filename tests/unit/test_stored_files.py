"""What is in the folder of a table: on a disk, and where there is no more than a file system."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyarrow import fs

from shardpost.delta.query import path_of
from shardpost.delta.stored_files import data_files, log_files, stored_files
from shardpost.delta.table import Table, columns
from shardpost.settings import Settings

TABLE = Table("grown", columns("n BIGINT"), folder="grown-2")
DATA = ("00000001-a/b.parquet", "00000001-a/.b.parquet.crc", "00000002-a/group=1/ü d.parquet")
LOG = ("_delta_log/00000000000000000000.json", "_delta_log/_last_checkpoint")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    for number, path in enumerate((*DATA, *LOG, "c.parquet")):
        file = Path(path_of(settings, TABLE), path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * number)
    return settings


def nothing(_path: str) -> bool:
    return False


@pytest.mark.parametrize("is_local", [True, False])
def test_the_log_and_the_data_are_all_that_is_stored(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    if not is_local:
        monkeypatch.setattr(fs, "LocalFileSystem", fs.S3FileSystem)
    log, data = log_files(settings, TABLE), data_files(settings, TABLE, nothing)
    assert {file.path for file in log} == {*LOG}
    assert {file.path: file.size for file in data} == {DATA[0]: 0, DATA[1]: 1, DATA[2]: 2} | {
        "c.parquet": 5
    }
    assert sorted([*log, *data], key=str) == sorted(stored_files(settings, TABLE), key=str)
    assert all(timedelta(0) <= datetime.now(UTC) - file.at < timedelta(hours=1) for file in log)
    [left] = data_files(settings, TABLE, lambda path: path in {*DATA})
    assert left.path == "c.parquet"


def test_of_a_table_that_is_not_there_nothing_is(tmp_path: Path) -> None:
    at = Settings(home=tmp_path)
    assert (log_files(at, TABLE), data_files(at, TABLE, nothing)) == ([], [])


def test_what_is_removed_while_it_looks_is_left_out(settings: Settings) -> None:
    root = Path(path_of(settings, TABLE))

    def remove(path: str) -> bool:
        (root / path).unlink()
        return False

    assert data_files(settings, TABLE, remove) == []
