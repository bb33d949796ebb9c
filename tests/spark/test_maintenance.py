"""Tables over many runs: few files, pruned and maintained, and all readers read what they did."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from shardpost import tables
from shardpost.delta import parquet_files, snapshots, storage, table_log
from shardpost.delta.query import rows, version_at
from shardpost.delta.storage import path_of
from shardpost.delta.table import Table
from shardpost.holders import folding
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.model.view_tables import (
    POSITION_EVENTS,
    POSITIONS,
    REJECTED_RECORDS,
    SHARE_HOLDERS,
    FoldingRule,
)
from shardpost.holders.pruned_histories import find_superseded, prune
from shardpost.maintenance.maintain import maintain
from shardpost.settings import Settings
from shardpost.spark import delta_files, driver
from tests.support.compacting import agree
from tests.support.delta_readers import read_versions
from tests.support.how_far import drawn, is_every, up_to
from tests.support.installed import installed
from tests.support.job_process import paused
from tests.support.record_streams import Stream
from tests.support.reference import Raw, closed, position

READ = (POSITION_EVENTS, POSITIONS, SHARE_HOLDERS)
LATER = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.one_of("histories cut into any runs")
def test_deltas_own_reader_sees_the_rows_of_every_snapshot(stream: Stream) -> None:
    settings = stream.settings
    stream.compact(*(position(str(n), f"client{n % 5}", "NASDAQ") for n in range(40)))
    stream.compact(closed("1"), position("2", "client9", "LON"), position("50", "new", "NYSE"))
    versions = [
        (table, snapshot.tables[table.name])
        for snapshot in snapshots.list_all(installed(settings).tables)
        for table in READ
    ]
    versions = drawn(versions, 3)
    theirs = read_versions(
        settings, [(path_of(installed(settings).tables, t), v) for t, v in versions]
    )
    for (table, version), found in zip(versions, theirs, strict=True):
        sql = f"SELECT * FROM {table.name}"  # noqa: S608 - a name of ours
        ours = rows(installed(settings).tables, sql, {table: version})
        names = ("client", "key", "seq", "snapshot", "positions", "exchange", "is_open", "kind")
        assert sorted(map(str, ([row.get(name) for name in names] for row in found))) == sorted(
            map(str, ([row.get(name) for name in names] for row in ours))
        )


@pytest.mark.one_of("histories cut into any runs")
@pytest.mark.also_on_store
@pytest.mark.parametrize("fold_runs", drawn([1, 100], every=1))
def test_compactions_and_reconciliations_go_on_after_a_pruning(
    stream: Stream, fold_runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = stream.settings
    monkeypatch.setattr(folding, "FOLDING", FoldingRule(runs=fold_runs))
    stream.compact(*(position(f"p{n % 5}", f"c{n % 3}", "NASDAQ") for n in range(30)), closed("p4"))
    stream.compact(position("p0", "c9", "NASDAQ"))
    found = find_superseded(
        installed(settings), snapshots.current(installed(settings).tables), LATER, {}
    )
    assert found.rows["position_events"] >= 25
    made = prune(installed(settings), found, datetime.now(UTC))
    assert made is not None
    agree(settings, stream.fold)
    stream.compact(position("p1", "c9", "NASDAQ"), closed("p2"), position("p4", "c1", "NASDAQ"))
    newest = snapshots.current(installed(settings).tables)
    assert (newest.number, newest.history_from) == (4, LATER)
    stream.compact(closed("p0"), reconcile=True)


@pytest.mark.one_of("histories cut into any runs")
def test_histories_of_many_compactions_are_few_files(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "FILES_PER_TIER", 3)
    settings, explained = stream.settings, []
    for number in range(up_to(7, 5)):
        bad = Raw("positions", b"bad", b"{" * (number + 1) * 2000)
        new = position(str(number), f"client{number % 2}", "NASDAQ")
        stream.compact(new, bad, closed(str(number - 2)))
        explained.append(tables.explain("client0", settings=settings))
    for table in (POSITION_EVENTS, REJECTED_RECORDS):
        newest = snapshots.current(installed(settings).tables).tables[table.name]
        # Of each run two at most, for the two cores.
        assert len(storage.sizes(installed(settings).tables, table, newest)) <= 4
        _all_readers_agree(settings, table)
    numbers = range(1, len(explained) + 1)
    at_each = [tables.explain("client0", snapshot=n, settings=settings) for n in numbers]
    assert at_each == explained


def _all_readers_agree(settings: Settings, table: Table) -> None:
    spark = driver.start_session("tests")
    versions = [
        snapshot.tables[table.name] for snapshot in snapshots.list_all(installed(settings).tables)
    ]
    places = [(path_of(installed(settings).tables, table), version) for version in versions]
    # Another JVM: of a quick run one is enough.
    theirs = read_versions(settings, places) if is_every() else [None for _ in versions]
    for version, found in zip(versions, theirs, strict=True):
        ours = rows(installed(settings).tables, f"SELECT * FROM {table.name}", {table: version})  # noqa: S608
        read = delta_files.read(spark, installed(settings).tables, table, version).collect()
        names = ("offset", "snapshot", "kind", "reason", "client", "topic", "seq")
        of_ours = sorted(str([row.get(name) for name in names]) for row in ours)
        assert sorted(str([row.asDict().get(name) for name in names]) for row in read) == of_ours
        if found is not None:
            assert sorted(str([row.get(name) for name in names]) for row in found) == of_ours
        values = sorted(bytes(row["value"]) for row in ours if row["value"])
        assert values == sorted(bytes(row["value"]) for row in read if row["value"])


@pytest.mark.one_of("histories cut into any runs")
@pytest.mark.also_on_store
def test_maintenance_between_runs_and_beside_one(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "FILES_PER_TIER", 3)
    settings = stream.settings
    seen: dict[int, dict[str, Any]] = {}

    def compact(number: int) -> None:
        stream.compact(*batch(number))
        seen[snapshots.current(installed(settings).tables).number] = answers(settings)

    for number in range(5):
        compact(number)
    make_older(settings)
    stream.send(batch(5))
    with paused(settings, COMPACT_POSITIONS, pause_at="share_holders") as job:
        found = maintain(installed(settings), datetime.now(UTC))
        assert found.dropped == [1]
        assert any(table.files for table in found.tables)
        require(settings, seen)
        job.resume()
        assert job.wait() == 0, job.log.read_text()
    agree(settings, stream.fold)
    seen[6] = answers(settings)
    maintain(installed(settings), datetime.now(UTC) + timedelta(hours=3))
    require(settings, seen)
    compact(6)
    require(settings, seen)
    if is_every() and not settings.is_on_store:  # that reader has no access there
        require_of_delta(settings)


def batch(number: int) -> list[Raw]:
    put = [position(str(n), f"client{(n + number) % 3}", "NASDAQ") for n in range(6)]
    return [*put, closed(str(number)), Raw("positions", b"bad", b"{")]


def answers(settings: Settings) -> dict[str, Any]:
    number = snapshots.current(installed(settings).tables).number
    return {
        "holders": tables.holders(snapshot=number, settings=settings),
        "explain": tables.explain("client1", snapshot=number, settings=settings),
        "rejected": tables.rejected(snapshot=number, settings=settings).num_rows,
    }


def make_older(settings: Settings) -> None:
    """Let five snapshots be committed as long ago as it takes for the first one to be dropped."""
    now = datetime.now(UTC)
    before = (now - timedelta(days=3)).replace(minute=0)
    times = [before + timedelta(minutes=10), before + timedelta(minutes=30)]
    times += [now - timedelta(days=days) for days in (2, 1, 0)]
    field = snapshots.SCHEMA.field("committed_at")

    def change(table: table_log.RowTable) -> None:
        stored = pa.concat_tables([table.read(file) for file in table.files]).sort_by("snapshot")
        at = stored.column_names.index(field.name)
        older = stored.set_column(at, field, pa.array(times, field.type))
        table.replace(table.files, [older.slice(0, 4), older.slice(4)])

    table_log.change(installed(settings).tables, snapshots.SNAPSHOTS, snapshots.NUMBER, change)


def require(settings: Settings, seen: dict[int, dict[str, Any]]) -> None:
    """Hold what every kept snapshot answers, by each way of reading, against what it did."""
    spark = driver.start_session("tests")
    kept = snapshots.list_all(installed(settings).tables)
    for snapshot in drawn(kept, 2):
        expected = seen[snapshot.number]
        number = snapshot.number
        version = version_at(snapshot, SHARE_HOLDERS)
        held = delta_files.read(spark, installed(settings).tables, SHARE_HOLDERS, version)
        found = {row.client: row.positions for row in held.collect() if row.positions}
        assert found == expected["holders"]
        if number == kept[-1].number:
            assert (
                tables.explain("client1", snapshot=number, settings=settings) == expected["explain"]
            )
            assert tables.holders(snapshot=number, settings=settings) == expected["holders"]


def require_of_delta(settings: Settings) -> None:
    """Let Delta's own reader of Spark read the stored rows of all kept snapshots."""
    spark, kept = driver.start_session("tests"), snapshots.list_all(installed(settings).tables)
    stored = [(table, snapshot.tables[table.name]) for snapshot in kept for table in READ]
    theirs = read_versions(
        settings, [(path_of(installed(settings).tables, t), v) for t, v in stored]
    )
    for (table, number), found in zip(stored, theirs, strict=True):
        assert (
            len(found) == delta_files.read(spark, installed(settings).tables, table, number).count()
        )
