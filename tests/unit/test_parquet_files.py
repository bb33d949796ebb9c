"""Small files of a table become one: which, with what rows, and at what cost."""

import json
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpost.delta import parquet_files, storage, table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.parquet_files import FILES_PER_TIER, TIER_BYTES, to_merge
from shardpost.delta.query import rows
from shardpost.delta.table import Table, columns
from shardpost.holders.model.view_tables import POSITION_EVENTS, SHARE_HOLDERS
from shardpost.settings import Settings
from tests.support.installed import installed
from tests.support.object_store import folder_of

pytestmark = pytest.mark.also_on_store

AT = datetime(2026, 11, 16, tzinfo=UTC)
THINGS = Table("things", columns("key STRING, offset BIGINT"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.model_validate({"home": tmp_path / "mit leere und tücke"})


def write(settings: Settings, table: Table, folder: str, found: list[dict[str, object]]) -> None:
    """Add rows as one file in a folder, as the next version."""
    storage.create(installed(settings).tables, table, 30)
    version = storage.newest_version(installed(settings).tables, table) or 0
    made = pa.Table.from_pylist(found, arrow_schema(table))
    action = parquet_files.write(installed(settings).tables, table, made, f"{folder}/a.parquet")
    table_log.commit(installed(settings).tables, table, version, [action])


def merge(settings: Settings, table: Table) -> int:
    version = storage.newest_version(installed(settings).tables, table) or 0
    added, removed = parquet_files.merge_small(
        installed(settings).tables, table, version, f"{version + 1:08d}-run"
    )
    return table_log.commit(installed(settings).tables, table, version, added, removed)


def test_a_merged_file_has_the_statistics_and_dictionaries_of_others(settings: Settings) -> None:
    for number in range(FILES_PER_TIER):
        row = {"key": str(number), "offset": number, "client": "c", "timestamp": AT}
        write(settings, POSITION_EVENTS, f"{number:08d}-a", [row, row])
    [action], _ = parquet_files.merge_small(
        installed(settings).tables, POSITION_EVENTS, FILES_PER_TIER, "00000017-b"
    )
    stats = json.loads(action.stats)
    assert stats["numRecords"] == 2 * FILES_PER_TIER
    assert (stats["minValues"]["offset"], stats["maxValues"]["offset"]) == (0, FILES_PER_TIER - 1)
    assert stats["nullCount"]["ticker"] == 2 * FILES_PER_TIER
    file = pq.ParquetFile(folder_of(settings, POSITION_EVENTS) / action.path)
    encodings = {
        (column := file.metadata.row_group(0).column(number)).path_in_schema: column.encodings
        for number in range(file.metadata.num_columns)
    }
    assert "RLE_DICTIONARY" in encodings["ticker"]
    assert "RLE_DICTIONARY" not in encodings["offset"]
    assert file.metadata.num_row_groups == 1


def test_a_merged_history_is_sorted_by_key_and_its_pages_have_bounds(settings: Settings) -> None:
    shuffled = Random(1).sample(range(5_000), 5_000)  # noqa: S311
    for number in range(FILES_PER_TIER):
        own = shuffled[number::FILES_PER_TIER]
        found: list[dict[str, object]] = [
            {"key": f"{n:04d}", "offset": n, "headers": [{"key": str(n), "value": b"v"}]}
            for n in own
        ]
        write(settings, POSITION_EVENTS, f"{number:08d}-a", [*found, {"key": None, "offset": -1}])
    before = rows(
        installed(settings).tables, "SELECT * FROM position_events", {POSITION_EVENTS: None}
    )
    version = merge(settings, POSITION_EVENTS)
    after = rows(
        installed(settings).tables, "SELECT * FROM position_events", {POSITION_EVENTS: version}
    )
    assert sorted(after, key=str) == sorted(before, key=str)
    [path] = storage.sizes(installed(settings).tables, POSITION_EVENTS, version)
    file = pq.ParquetFile(folder_of(settings, POSITION_EVENTS) / path)
    keys = file.read(["key"])["key"].to_pylist()
    assert keys == [f"{n:04d}" for n in range(5_000)] + [None] * FILES_PER_TIER
    assert file.metadata.row_group(0).column(0).has_column_index


def test_a_row_group_too_large_to_be_sorted_is_written_as_it_is(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "SORTED_BYTES", 0)
    write(settings, POSITION_EVENTS, "00000001-a", [{"key": "b"}, {"key": "a"}])
    found = parquet_files.read(installed(settings).tables, POSITION_EVENTS, "00000001-a/a.parquet")
    assert found["key"].to_pylist() == ["b", "a"]


def test_groups_stay_in_files_of_their_own(settings: Settings) -> None:
    for number in range(FILES_PER_TIER):
        for shard in (1, 2):
            row = {"client": f"{shard}/{number}", "positions": ["1"], "snapshot": 1, "shard": shard}
            write(settings, SHARE_HOLDERS, f"{number:08d}-a/group={shard}", [row])
    version = merge(settings, SHARE_HOLDERS)
    assert {*storage.sizes(installed(settings).tables, SHARE_HOLDERS, version)} == {
        f"{version:08d}-run/group={shard}/merged.parquet" for shard in (1, 2)
    }
    found = rows(
        installed(settings).tables,
        "SELECT client, shard FROM share_holders",
        {SHARE_HOLDERS: version},
    )
    assert len(found) == 2 * FILES_PER_TIER


def test_what_cannot_be_written_leaves_no_file(settings: Settings) -> None:
    write(settings, THINGS, "00000001-a", [{"key": "a", "offset": 1}])
    (folder_of(settings, THINGS) / "00000001-a/a.parquet").write_bytes(b"PAR1 broken")
    with pytest.raises(pa.ArrowInvalid):
        parquet_files.merge(
            installed(settings).tables, THINGS, ["00000001-a/a.parquet"], "00000002-b/m.parquet"
        )
    assert not [*folder_of(settings, THINGS).rglob("m.parquet")]


PLAIN = Table("things", columns("number BIGINT"))
GROUPED = Table("grouped", columns("number BIGINT, shard INT"), "shard")
SMALL, LARGE = 1000, TIER_BYTES[-1]
FOOTER = 4096  # of the smallest file; rows beside each other have one


def test_a_tier_is_merged_once_it_is_full() -> None:
    files = {f"{number:02d}.parquet": SMALL for number in range(FILES_PER_TIER)}
    assert to_merge(PLAIN, files) == [sorted(files)]
    del files["00.parquet"]
    assert to_merge(PLAIN, files) == []


def test_smaller_files_go_with_a_full_tier_and_larger_ones_do_not() -> None:
    full = {f"full{number}": TIER_BYTES[0] for number in range(FILES_PER_TIER)}
    assert to_merge(PLAIN, full | {"small": SMALL, "next": TIER_BYTES[1]}) == [
        sorted([*full, "small"])
    ]
    assert to_merge(PLAIN, {f"large{number}": LARGE for number in range(100)}) == []


def test_groups_stay_apart() -> None:
    one = {f"{number:02d}/group=1/a.parquet": SMALL for number in range(FILES_PER_TIER)}
    other = {"00/group=2/a.parquet": SMALL}
    assert to_merge(GROUPED, one | other) == [sorted(one)]


@given(st.lists(st.integers(1, 1 << 20), min_size=200, max_size=1500))
def test_few_files_are_left_and_few_bytes_written_again(rows: list[int]) -> None:
    files: dict[str, int] = {}
    again = 0
    for number, size in enumerate(rows):
        for group in to_merge(PLAIN, files):
            merged = sum(files.pop(path) - FOOTER for path in group) + FOOTER
            files[f"merged{number}"] = merged
            again += merged
        files[f"new{number}"] = size + FOOTER
    large = sum(size >= LARGE for size in files.values())
    assert len(files) - large <= FILES_PER_TIER * len(TIER_BYTES)
    assert sum(files.values()) == sum(rows) + FOOTER * len(files)
    assert again <= 3 * sum(size + FOOTER for size in rows)
