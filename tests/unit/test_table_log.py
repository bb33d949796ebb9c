"""Committing files to a Delta log: one version each, and bounds that readers may rely on."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.transaction import AddAction

from shardpost.delta import file_statistics, table_log
from shardpost.delta.query import path_of, rows
from shardpost.delta.table import Table, columns
from shardpost.errors import ShardpostError
from shardpost.settings import Settings

TABLE = Table("things", columns("name STRING, at TIMESTAMP, number BIGINT"))
COLUMNS = pa.schema(
    [("name", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("number", pa.int64())]
)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
YEAR_50000 = 1_515_722_400_000_000_000  # microseconds; more than Python's datetime holds


@pytest.fixture
def settings(settings: Settings) -> Settings:
    table_log.create(settings, TABLE, 30)
    return settings


def write(settings: Settings, folder: str, columns: Mapping[str, object]) -> list[AddAction]:
    (Path(path_of(settings, TABLE)) / folder).mkdir()
    pq.write_table(pa.table(columns, COLUMNS), f"{path_of(settings, TABLE)}/{folder}/a.parquet")
    return file_statistics.add_actions(settings, TABLE, folder)


def thing(name: str | None, number: int = 1) -> dict[str, list[object]]:
    return {"name": [name], "at": [NOON], "number": [number]}


def test_files_are_added_and_removed_as_one_version(settings: Settings) -> None:
    assert table_log.commit(settings, TABLE, 0, write(settings, "one", thing("a"))) == 1
    assert table_log.commit(settings, TABLE, 1, []) == 1
    added = write(settings, "two", thing("b", 2))
    assert table_log.commit(settings, TABLE, 1, added, ["one/a.parquet"]) == 2
    assert list(table_log.sizes(settings, TABLE, 2)) == ["two/a.parquet"]
    sql = "SELECT name FROM things"
    assert [rows(settings, sql, {TABLE: version}) for version in (0, 1, 2)] == [
        [],
        [{"name": "a"}],
        [{"name": "b"}],
    ]


def test_a_version_that_somebody_else_wrote_is_not_written_again(settings: Settings) -> None:
    first, second = write(settings, "one", thing("a")), write(settings, "two", thing("b"))
    table_log.commit(settings, TABLE, 0, first)
    with pytest.raises(ShardpostError, match="things: expected to write version 1"):
        table_log.commit(settings, TABLE, 0, second)
    assert table_log.newest_version(settings, TABLE) == 1


def test_a_table_that_is_restored_is_what_it_was(settings: Settings) -> None:
    table_log.commit(settings, TABLE, 0, write(settings, "one", thing("a")))
    table_log.commit(settings, TABLE, 1, write(settings, "two", thing("b")), ["one/a.parquet"])
    assert table_log.restore(settings, TABLE, 1) == 3
    assert list(table_log.sizes(settings, TABLE, 3)) == ["one/a.parquet"]


def test_bounds_are_given_where_they_are_of_use(settings: Settings) -> None:
    columns = {"name": ["b", None, "a"], "at": [NOON, NOON, None], "number": [3, -1, 2]}
    [file] = write(settings, "one", columns)
    assert json.loads(file.stats) == {
        "numRecords": 3,
        "minValues": {"name": "a", "at": "2026-11-16T12:00:00.000Z", "number": -1},
        "maxValues": {"name": "b", "at": "2026-11-16T12:00:00.000Z", "number": 3},
        "nullCount": {"name": 1, "at": 1, "number": 0},
    }


@pytest.mark.parametrize("at", [NOON.replace(microsecond=1), YEAR_50000])
def test_bounds_that_would_be_wrong_are_left_out(settings: Settings, at: object) -> None:
    columns = {"name": ["x" * 65], "at": pa.array([at], COLUMNS.field("at").type), "number": [None]}
    [file] = write(settings, "one", columns)
    stats = json.loads(file.stats)
    assert (stats["numRecords"], stats["minValues"], stats["maxValues"]) == (1, {}, {})


def test_files_are_left_out_whose_bounds_say_that_nothing_in_them_is_before_a_time(
    settings: Settings,
) -> None:
    def before(version: int, hours: int) -> set[str]:
        return {*table_log.files_before(settings, TABLE, version, "at", at(hours))}

    def at(hours: int) -> datetime:
        return NOON + timedelta(hours=hours)

    without = write(settings, "none", {**thing("a"), "at": [None]})
    assert before(table_log.commit(settings, TABLE, 0, without), 0) == {"none/a.parquet"}
    added = write(settings, "late", {**thing("a"), "at": [at(2)]})
    added += write(settings, "unknown", {**thing("a"), "at": [NOON.replace(microsecond=1)]})
    added += write(settings, "noon", thing("a"))
    assert table_log.commit(settings, TABLE, 1, added) == 2
    always = {"none/a.parquet", "unknown/a.parquet"}
    assert before(2, 0) == always
    assert before(2, 1) == {*always, "noon/a.parquet"}
    assert before(2, 3) == {*always, "noon/a.parquet", "late/a.parquet"}


def test_files_without_rows_and_folders_that_are_not_there_add_nothing(settings: Settings) -> None:
    assert write(settings, "none", {"name": [], "at": [], "number": []}) == []
    assert file_statistics.add_actions(settings, TABLE, "nowhere") == []
