"""Many small compactions: few files, and at every snapshot what was there."""

from collections.abc import Callable

import pytest

from shardpost import tables
from shardpost.delta import parquet_files, snapshots, table_log
from shardpost.delta.query import path_of, rows
from shardpost.delta.table import Table
from shardpost.holders.model.view_tables import POSITION_EVENTS, REJECTED_RECORDS
from shardpost.settings import Settings
from shardpost.spark import delta_files, driver
from tests.spark.test_delta_reader import read_by_delta
from tests.support.compacting import agree, run, starter
from tests.support.how_far import is_every
from tests.support.reference import Fold, Raw, closed, position, produce


def test_histories_of_many_compactions_are_few_files(
    fresh: Callable[[], Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "FILES_PER_TIER", 3)
    settings = fresh()
    fold = Fold()
    fold.add(starter())
    explained = []
    for number in range(7):
        made = [position(str(number), f"client{number % 2}", "NASDAQ")]
        made += [Raw("positions", b"bad", b"{" * (number + 1) * 2000), closed(str(number - 2))]
        produce(settings, made)
        fold.add(made)
        run(settings)
        agree(settings, fold)
        explained.append(tables.explain("client0", settings=settings))
    for table in (POSITION_EVENTS, REJECTED_RECORDS):
        newest = snapshots.current(settings).tables[table.name]
        # Of each run two at most, for the two cores.
        assert len(table_log.sizes(settings, table, newest)) <= 4
        _all_readers_agree(settings, table)
    at_each = [tables.explain("client0", snapshot=n + 1, settings=settings) for n in range(7)]
    assert at_each == explained


def _all_readers_agree(settings: Settings, table: Table) -> None:
    spark = driver.start_session("tests")
    versions = [snapshot.tables[table.name] for snapshot in snapshots.list_all(settings)]
    places = [(path_of(settings, table), version) for version in versions]
    # Another JVM: of a quick run one is enough (test_delta_reader.py).
    theirs = read_by_delta(settings, places) if is_every() else [None for _ in versions]
    for version, found in zip(versions, theirs, strict=True):
        ours = rows(settings, f"SELECT * FROM {table.name}", {table: version})  # noqa: S608
        read = delta_files.read(spark, settings, table, version).collect()
        names = ("offset", "snapshot", "kind", "reason", "client", "topic", "seq")
        of_ours = sorted(str([row.get(name) for name in names]) for row in ours)
        assert sorted(str([row.asDict().get(name) for name in names]) for row in read) == of_ours
        if found is not None:
            assert sorted(str([row.get(name) for name in names]) for row in found) == of_ours
        values = sorted(bytes(row["value"]) for row in ours if row["value"])
        assert values == sorted(bytes(row["value"]) for row in read if row["value"])
