"""Rows split by key: all of them, each key in one part, and no file is left."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from shardpost.delta import rewritten_files as module
from shardpost.delta.rewritten_files import split_by_key


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
    found = split(tmp_path / "home", rows, parts)
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
