"""Maintenance of real tables, beside a compaction that is writing: readers read what they did."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from shardpost import tables
from shardpost.delta import parquet_files, row_files, snapshots
from shardpost.delta.query import path_of, version_at
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.model.view_tables import POSITION_EVENTS, POSITIONS, SHARE_HOLDERS
from shardpost.maintenance.maintain import maintain
from shardpost.settings import Settings
from shardpost.spark import delta_files, driver
from tests.spark.test_delta_reader import read_by_delta
from tests.support.compacting import agree, run, starter
from tests.support.how_far import is_every
from tests.support.job_process import Job
from tests.support.reference import Fold, Raw, closed, position, produce

READ = (POSITION_EVENTS, POSITIONS, SHARE_HOLDERS)


@pytest.mark.timeout(600)
def test_maintenance_between_runs_and_beside_one(
    fresh: Callable[[], Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "FILES_PER_TIER", 3)
    settings, fold = fresh(), Fold()
    fold.add(starter())
    seen: dict[int, dict[str, Any]] = {}

    def compact(number: int) -> None:
        produce(settings, batch(number))
        fold.add(batch(number))
        run(settings)
        agree(settings, fold)
        seen[snapshots.current(settings).number] = answers(settings)

    for number in range(4):
        compact(number)
    make_older(settings)
    produce(settings, batch(4))
    fold.add(batch(4))
    job = Job(settings, COMPACT_POSITIONS, pause_at="share_holders")
    try:
        job.wait_until_paused()
        found = maintain(settings, datetime.now(UTC))
        assert found.dropped == [1]
        assert any(table.files for table in found.tables)
        require(settings, seen)
        job.resume()
        assert job.wait() == 0, job.log.read_text()
    finally:
        job.kill()
    agree(settings, fold)
    seen[5] = answers(settings)
    maintain(settings, datetime.now(UTC) + timedelta(hours=3))
    require(settings, seen)
    compact(5)
    require(settings, seen)
    if is_every():
        require_of_delta(settings)


def batch(number: int) -> list[Raw]:
    put = [position(str(n), f"client{(n + number) % 3}", "NASDAQ") for n in range(6)]
    return [*put, closed(str(number)), Raw("positions", b"bad", b"{")]


def answers(settings: Settings) -> dict[str, Any]:
    number = snapshots.current(settings).number
    return {
        "holders": tables.holders(snapshot=number, settings=settings),
        "explain": tables.explain("client1", snapshot=number, settings=settings),
        "rejected": tables.rejected(snapshot=number, settings=settings).num_rows,
    }


def make_older(settings: Settings) -> None:
    """Let four snapshots be committed as long ago as it takes for the first one to be dropped."""
    now = datetime.now(UTC)
    before = (now - timedelta(days=3)).replace(minute=0)
    times = [before + timedelta(minutes=10), before + timedelta(minutes=30)]
    times += [now - timedelta(days=days) for days in (1, 0)]
    field = snapshots.SCHEMA.field("committed_at")

    def change(table: row_files.RowTable) -> None:
        stored = pa.concat_tables([table.read(file) for file in table.files]).sort_by("snapshot")
        at = stored.column_names.index(field.name)
        older = stored.set_column(at, field, pa.array(times, field.type))
        table.replace(table.files, [older.slice(0, 3), older.slice(3)])

    row_files.change(settings, snapshots.SNAPSHOTS, snapshots.NUMBER, change)


def require(settings: Settings, seen: dict[int, dict[str, Any]]) -> None:
    """Hold what every kept snapshot answers, by each way of reading, against what it did."""
    spark = driver.start_session("tests")
    kept = snapshots.list_all(settings)
    for snapshot in kept:
        expected = seen[snapshot.number]
        number = snapshot.number
        version = version_at(snapshot, SHARE_HOLDERS)
        held = delta_files.read(spark, settings, SHARE_HOLDERS, version)
        found = {row.client: row.positions for row in held.collect() if row.positions}
        assert found == expected["holders"]
        if number == kept[-1].number:
            assert (
                tables.explain("client1", snapshot=number, settings=settings) == expected["explain"]
            )
            assert tables.holders(snapshot=number, settings=settings) == expected["holders"]


def require_of_delta(settings: Settings) -> None:
    """Let Delta's own reader of Spark read the stored rows of all kept snapshots."""
    spark, kept = driver.start_session("tests"), snapshots.list_all(settings)
    stored = [(table, snapshot.tables[table.name]) for snapshot in kept for table in READ]
    theirs = read_by_delta(settings, [(path_of(settings, t), v) for t, v in stored])
    for (table, number), rows in zip(stored, theirs, strict=True):
        assert len(rows) == delta_files.read(spark, settings, table, number).count()
