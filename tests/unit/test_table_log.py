"""Committing files to a Delta log, and tables of another release, which are refused by name."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.transaction import AddAction

from shardpost.dead_letters.model.letter_format import DEAD_LETTERS
from shardpost.delta import file_statistics, snapshots, storage, table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import rows
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.delta.storage import (
    FIRST_FORM,
    FORM,
    FORM_PROPERTY,
    TableFormError,
    open_table,
)
from shardpost.delta.table import Table, columns, text_literal
from shardpost.errors import BAD_USAGE, ShardpostError
from shardpost.holders.compaction import compact
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.settings import Settings
from shardpost.watch.table_checks import check_snapshot
from tests.support.command_line import CommandLine
from tests.support.committed_snapshot import commit_snapshot
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.object_store import folder_of

pytestmark = pytest.mark.also_on_store

TABLE = Table("things", columns("name STRING, at TIMESTAMP, number BIGINT"))
COLUMNS = arrow_schema(TABLE)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
YEAR_50000 = 1_515_722_400_000_000_000  # microseconds; more than Python's datetime holds


@pytest.fixture
def settings(settings: Settings) -> Settings:
    storage.create(installed(settings).tables, TABLE, 30)
    return settings


def write(settings: Settings, folder: str, columns: Mapping[str, object]) -> list[AddAction]:
    file = folder_of(settings, TABLE) / folder / "a.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table(columns, COLUMNS), file)
    return file_statistics.add_actions(installed(settings).tables, TABLE, folder)


def thing(name: str | None, number: int = 1) -> dict[str, list[object]]:
    return {"name": [name], "at": [NOON], "number": [number]}


def test_files_are_added_and_removed_as_one_version(settings: Settings) -> None:
    assert (
        table_log.commit(installed(settings).tables, TABLE, 0, write(settings, "one", thing("a")))
        == 1
    )
    assert table_log.commit(installed(settings).tables, TABLE, 1, []) == 1
    added = write(settings, "two", thing("b", 2))
    assert table_log.commit(installed(settings).tables, TABLE, 1, added, ["one/a.parquet"]) == 2
    assert list(storage.sizes(installed(settings).tables, TABLE, 2)) == ["two/a.parquet"]
    sql = "SELECT name FROM things"
    assert [rows(installed(settings).tables, sql, {TABLE: version}) for version in (0, 1, 2)] == [
        [],
        [{"name": "a"}],
        [{"name": "b"}],
    ]


def test_a_version_that_somebody_else_wrote_is_not_written_again(settings: Settings) -> None:
    first, second = write(settings, "one", thing("a")), write(settings, "two", thing("b"))
    table_log.commit(installed(settings).tables, TABLE, 0, first)
    with pytest.raises(ShardpostError, match="things: expected to write version 1"):
        table_log.commit(installed(settings).tables, TABLE, 0, second)
    assert storage.newest_version(installed(settings).tables, TABLE) == 1


def test_a_table_that_is_restored_is_what_it_was(settings: Settings) -> None:
    table_log.commit(installed(settings).tables, TABLE, 0, write(settings, "one", thing("a")))
    table_log.commit(
        installed(settings).tables, TABLE, 1, write(settings, "two", thing("b")), ["one/a.parquet"]
    )
    assert table_log.restore(installed(settings).tables, TABLE, 1) == 3
    assert list(storage.sizes(installed(settings).tables, TABLE, 3)) == ["one/a.parquet"]


def test_bounds_are_given_where_they_are_of_use(settings: Settings) -> None:
    columns = {"name": ["b", None, "a"], "at": [NOON, NOON, None], "number": [3, -1, 2]}
    [file] = write(settings, "one", columns)
    assert json.loads(file.stats) == {
        "numRecords": 3,
        "minValues": {"name": "a", "at": "2026-11-16T12:00:00.000Z", "number": -1},
        "maxValues": {"name": "b", "at": "2026-11-16T12:00:00.000Z", "number": 3},
        "nullCount": {"name": 1, "at": 1, "number": 0},
    }


@pytest.mark.parametrize(
    "name",
    [
        "",
        "\0",
        "\x1f\x7f\u2028\ufeff",
        "\uffff",
        "\U0001f600",
        "\U00020bb7\u7530",
        "\U0003134f",
        "\U000e0001",
        "\U0010ffff" * file_statistics.MAX_BOUND_LENGTH,
        "\U0010ffff" * 340,
    ],
    ids=ascii,
)
def test_a_text_is_found_that_is_the_lowest_or_the_highest_of_its_file(
    settings: Settings, name: str
) -> None:
    def found() -> list[int]:
        sql = f"SELECT number FROM things WHERE name = {text_literal(name)} ORDER BY 1"  # noqa: S608
        return [row["number"] for row in rows(installed(settings).tables, sql, {TABLE: None})]

    def checkpoint(version: int) -> None:
        storage.opened(installed(settings).tables, TABLE, version).create_checkpoint()

    high = {"name": ["", name], "at": [NOON] * 2, "number": [0, 1]}
    low = {"name": [name, "\U0010ffff" * 341], "at": [NOON] * 2, "number": [2, 3]}
    added = write(settings, "high", high) + write(settings, "low", low)
    version = table_log.commit(installed(settings).tables, TABLE, 0, added)
    expected = [1, 2] if name else [0, 1, 2]
    assert found() == expected
    checkpoint(version)
    table_log.commit(installed(settings).tables, TABLE, version, [], ["low/a.parquet"])
    table_log.restore(installed(settings).tables, TABLE, version)
    assert found() == expected
    checkpoint(version + 2)
    assert found() == expected


@pytest.mark.parametrize("number", [-(2**63), 2**53 + 1, 2**63 - 1])
@pytest.mark.parametrize("at", ["0001-01-01", "1969-12-31T23:59:59.999", "9999-12-31T23:59:59.999"])
def test_numbers_and_times_are_found_at_the_ends_of_what_they_can_be(
    settings: Settings, number: int, at: str
) -> None:
    time = datetime.fromisoformat(at).replace(tzinfo=UTC)
    added = write(settings, "one", {"name": ["a"], "at": [time], "number": [number]})
    table_log.commit(installed(settings).tables, TABLE, 0, added)
    stored = "arrow_cast('{at}', 'Timestamp(Microsecond, Some(\"UTC\"))')"
    sql = f"SELECT name FROM things WHERE number = {number} AND at = {stored.format(at=at)}"  # noqa: S608
    assert rows(installed(settings).tables, sql, {TABLE: None}) == [{"name": "a"}]


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
        return {*storage.files_before(installed(settings).tables, TABLE, version, "at", at(hours))}

    def at(hours: int) -> datetime:
        return NOON + timedelta(hours=hours)

    without = write(settings, "none", {**thing("a"), "at": [None]})
    assert before(table_log.commit(installed(settings).tables, TABLE, 0, without), 0) == {
        "none/a.parquet"
    }
    added = write(settings, "late", {**thing("a"), "at": [at(2)]})
    added += write(settings, "unknown", {**thing("a"), "at": [NOON.replace(microsecond=1)]})
    added += write(settings, "noon", thing("a"))
    assert table_log.commit(installed(settings).tables, TABLE, 1, added) == 2
    always = {"none/a.parquet", "unknown/a.parquet"}
    assert before(2, 0) == always
    assert before(2, 1) == {*always, "noon/a.parquet"}
    assert before(2, 3) == {*always, "noon/a.parquet", "late/a.parquet"}


def test_files_without_rows_and_folders_that_are_not_there_add_nothing(settings: Settings) -> None:
    assert write(settings, "none", {"name": [], "at": [], "number": []}) == []
    assert file_statistics.add_actions(installed(settings).tables, TABLE, "nowhere") == []


NOW = datetime(2026, 11, 23, tzinfo=UTC)
BEFORE = "was made before 0.2.0, the first release"
NEWER = f"was made by a newer release of Shardpost: it has form {FORM + 1}"


def give_form(settings: Settings, table: Table, form: int | None) -> None:
    """Change the form of a table in the first entry of its log; None is that of no release."""
    log = Path(folder_of(settings, table), "_delta_log", f"{0:020d}.json")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    for entry in entries:
        if "metaData" in entry:
            del entry["metaData"]["configuration"][FORM_PROPERTY]
            if form is not None:
                entry["metaData"]["configuration"][FORM_PROPERTY] = str(form)
    log.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))


@pytest.mark.parametrize(
    ("form", "said"), [(None, BEFORE), (0, BEFORE), (FIRST_FORM - 1, BEFORE), (FORM + 1, NEWER)]
)
def test_tables_of_another_release_are_refused(
    kafka: MemoryKafka, shardpost: CommandLine, form: int | None, said: str
) -> None:
    commit_snapshot(kafka, client1=["1"])
    give_form(kafka.settings, SNAPSHOTS, form)
    with pytest.raises(TableFormError, match=f"table snapshots in .* {said}"):
        snapshots.newest(installed(kafka.settings).tables)
    with pytest.raises(TableFormError, match=said):
        snapshots.list_all(installed(kafka.settings).tables)
    with pytest.raises(TableFormError, match=said):
        storage.writable(installed(kafka.settings).tables, SNAPSHOTS)
    [finding] = check_snapshot(installed(kafka.settings), NOW)
    assert (finding.check, finding.state) == ("tables", "error")
    assert said in finding.found
    with pytest.raises(TableFormError, match=said):  # `compact`, and its job
        compact(installed(kafka.settings), CompactionRequest())
    for command in (["holders"], ["snapshots"], ["tables", "list"]):
        assert said in shardpost.refused(*command, code=BAD_USAGE)


def test_a_table_that_no_snapshot_names_is_refused_too(settings: Settings) -> None:
    storage.create(installed(settings).tables, DEAD_LETTERS, 7)
    give_form(settings, DEAD_LETTERS, None)
    with pytest.raises(TableFormError, match=f"table dead_letters in .* {BEFORE}"):
        storage.writable(installed(settings).tables, DEAD_LETTERS)


def test_a_table_keeps_its_form_when_it_is_restored(settings: Settings) -> None:
    storage.create(installed(settings).tables, DEAD_LETTERS, 7)
    version = table_log.commit(installed(settings).tables, DEAD_LETTERS, 0, (), (), {"read": 1})
    table_log.restore(installed(settings).tables, DEAD_LETTERS, 0)
    found = open_table(installed(settings).tables, DEAD_LETTERS).metadata().configuration
    assert found[FORM_PROPERTY] == str(FORM)
    assert storage.opened(installed(settings).tables, DEAD_LETTERS).version() == version + 1
