"""What is in the folder of a table, and rows split by key, of which no file is left."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from shardpost.delta import rewritten_files as module
from shardpost.delta.rewritten_files import split_by_key
from shardpost.delta.stored_files import data_files, log_files, stored_files
from shardpost.delta.table import Table, columns
from shardpost.settings import Settings
from tests.support.installed import installed
from tests.support.object_store import folder_of

TABLE = Table("grown", columns("n BIGINT"), folder="grown-2")
DATA = ("00000001-a/b.parquet", "00000001-a/.b.parquet.crc", "00000002-a/group=1/ü d.parquet")
LOG = ("_delta_log/00000000000000000000.json", "_delta_log/_last_checkpoint")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    for number, path in enumerate((*DATA, *LOG, "c.parquet")):
        file = Path(folder_of(settings, TABLE), path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * number)
    return settings


def nothing(_path: str) -> bool:
    return False


def test_the_log_and_the_data_are_all_that_is_stored(settings: Settings) -> None:
    log, data = (
        log_files(installed(settings).tables, TABLE),
        data_files(installed(settings).tables, TABLE, nothing),
    )
    assert {file.path for file in log} == {*LOG}
    assert {file.path: file.size for file in data} == {DATA[0]: 0, DATA[1]: 1, DATA[2]: 2} | {
        "c.parquet": 5
    }
    assert sorted([*log, *data], key=str) == sorted(
        stored_files(installed(settings).tables, TABLE), key=str
    )
    assert all(timedelta(0) <= datetime.now(UTC) - file.at < timedelta(hours=1) for file in log)
    [left] = data_files(installed(settings).tables, TABLE, lambda path: path in {*DATA})
    assert left.path == "c.parquet"


def test_of_a_table_that_is_not_there_nothing_is(tmp_path: Path) -> None:
    at = Settings(home=tmp_path)
    assert (
        log_files(installed(at).tables, TABLE),
        data_files(installed(at).tables, TABLE, nothing),
    ) == ([], [])


def test_what_is_removed_while_it_looks_is_left_out(settings: Settings) -> None:
    root = folder_of(settings, TABLE)

    def remove(path: str) -> bool:
        (root / path).unlink()
        return False

    assert data_files(installed(settings).tables, TABLE, remove) == []


def some(count: int) -> list[tuple[str, int]]:
    random = Random(count)  # noqa: S311
    return [(random.choice("abcdefghi\u00e9"), number) for number in range(count)]


def tables(rows: list[tuple[str, int]], at_once: int) -> list[pa.Table]:
    parts = [rows[at : at + at_once] for at in range(0, len(rows), at_once)]
    return [pa.table({"key": [k for k, _ in part], "n": [n for _, n in part]}) for part in parts]


def split(folder: Path, rows: list[tuple[str, int]], parts: int) -> list[list[tuple[str, int]]]:
    found = split_by_key(tables(rows, 7), "key", parts, folder)
    return [[(row["key"], row["n"]) for row in one.to_pylist()] for one in found]


@pytest.mark.parametrize("parts", [0, 1, 2, 5, 1_000])
@pytest.mark.parametrize("count", [0, 1, 6, 100])
def test_all_rows_are_there_and_those_of_a_key_together_in_their_order(
    tmp_path: Path, parts: int, count: int
) -> None:
    rows = some(count)
    found = split(tmp_path, rows, parts)
    assert sorted(row for part in found for row in part) == sorted(rows)
    keys = [{key for key, _ in part} for part in found]
    assert sum(map(len, keys)) == len({key for key, _ in rows})
    for part in found:
        for key in {key for key, _ in part}:
            assert [r for r in part if r[0] == key] == [r for r in rows if r[0] == key]
    assert not [*tmp_path.rglob("*.*")]


def test_several_parts_are_not_in_memory_together_and_never_more_than_may_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PARTS", 3)
    assert len(split(tmp_path, some(100), 1_000)) == 3


def test_a_key_that_is_null_is_in_a_part_too(tmp_path: Path) -> None:
    rows = pa.table({"key": ["a", None, "b", None], "n": [1, 2, 3, 4]})
    [both] = [
        part
        for part in split_by_key([rows], "key", 50, tmp_path)
        if None in part["key"].to_pylist()
    ]
    assert [row["n"] for row in both.to_pylist() if row["key"] is None] == [2, 4]
