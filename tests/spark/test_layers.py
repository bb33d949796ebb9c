"""Layered tables on Spark give the rows that DataFusion gives, at every snapshot."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.table import LayeredVersion, Table
from shardpost.holders.model.view_tables import EXCHANGES, POSITIONS, SHARE_HOLDERS
from shardpost.settings import Settings
from shardpost.spark import delta_files
from shardpost.spark.delta_files import read
from tests.support.histories import Batch, write
from tests.support.how_far import up_to
from tests.support.random_histories import LAYERED_BATCHES

TABLES = (POSITIONS, EXCHANGES, SHARE_HOLDERS)
# Columns of which both engines give the same Python values.
COMPARED = {"key", "client", "positions", "seq", "snapshot", "retry_offset", "is_open", "country"}


@pytest.mark.parametrize("broadcast_rows", [0, delta_files.MAX_BROADCAST_ROWS])
@settings(
    max_examples=up_to(3, 2),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.generate],
)
@given(LAYERED_BATCHES)
def test_spark_reads_the_rows_that_datafusion_reads(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    broadcast_rows: int,
    batches: Sequence[Batch],
) -> None:
    monkeypatch.setattr(delta_files, "MAX_BROADCAST_ROWS", broadcast_rows)
    with tempfile.TemporaryDirectory() as home:
        at = Settings(home=Path(home))
        write(at, batches)
        for snapshot in snapshots.list_all(at):
            for table, version in at_snapshot(snapshot, *TABLES).items():
                ours = rows(at, f"SELECT * FROM {table.name}", {table: version})  # noqa: S608
                names = [name for name in table.names if name in COMPARED]
                expected = sorted(repr([row[name] for name in names]) for row in ours)
                assert compared(read(spark, at, table, version), names) == expected
                if isinstance(version, LayeredVersion):
                    whole = read(spark, at, table, version, keys_of(spark, table, ours))
                    assert compared(whole, names) == expected


def compared(frame: DataFrame, names: list[str]) -> list[str]:
    return sorted(repr([row[name] for name in names]) for row in frame.collect())


def keys_of(spark: SparkSession, table: Table, found: list[dict[str, object]]) -> DataFrame:
    name = table.names[0]
    keys = spark.createDataFrame([(row[name],) for row in found], f"{name} STRING")
    return keys.unionByName(keys.select(F.concat(F.lit("no "), name).alias(name)))
