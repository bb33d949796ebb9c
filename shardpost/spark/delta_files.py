"""Delta tables for Spark: the Parquet files that one version of a table's log names.

Spark reads and writes the files; delta/table_log.py commits them.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from shardpost.delta import file_statistics, storage
from shardpost.delta.storage import Tables, path_of
from shardpost.delta.table import LayeredVersion, Table, Version, type_text
from shardpost.errors import ShardpostError
from shardpost.spark import run_size
from shardpost.spark.submit import is_local
from shardpost.waiting import attempts
from shardpost.wording import counted

# Without a length to cut bounds at, Parquet leaves out all statistics of a column with values of
# 4 KiB, also how many are null. Bounds of so many bytes are too long for a table's log
# (file_statistics.MAX_BOUND_LENGTH), so that none that was cut gets there.
STATISTICS_BYTES = 1024
# Spark says a moment after the end of a write how many rows its tasks had.
COUNT_SECONDS = 60.0
COUNT_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Written:
    """Files that were just written, not committed yet, with the statistics of their footers."""

    table: Table
    files: list[AddAction]

    @property
    def rows(self) -> int:
        """How many rows they have."""
        return sum(stats["numRecords"] for stats in self._stats())

    def minimum(self, column: str) -> Any:
        """Return the lowest value of a column of numbers; None if it has no value."""
        with_values = (stats for stats in self._stats() if _non_null(stats, column))
        return min((stats["minValues"][column] for stats in with_values), default=None)

    def non_null(self, column: str) -> int:
        """Return how many rows have a value in a column."""
        return sum(_non_null(stats, column) for stats in self._stats())

    def _stats(self) -> Iterator[dict[str, Any]]:
        return (json.loads(file.stats) for file in self.files)


def read(
    spark: SparkSession,
    tables: Tables,
    table: Table,
    version: Version,
    keys: DataFrame | None = None,
) -> DataFrame:
    """Return a table at a version, as a snapshot has it: with its layer, if it has one.

    With `keys`, each once in the one column, return only the rows of these; there is a layer then.
    """
    if not isinstance(version, LayeredVersion):
        return _read_stored(spark, tables, table, version)
    assert table.layer is not None  # noqa: S101 - else no version is layered
    source = table.layer_source
    # Of the layer only those files are read that may have rows of it.
    newer = storage.files_after(tables, source, version.source, version.folded)
    is_small = (
        keys is None and sum(file.rows for file in newer) <= run_size.THRESHOLDS.broadcast_keys
    )
    text = table.layer.view if keys is None else table.layer.of_keys
    sql = text.format(
        folded=version.folded,
        small="/*+ BROADCAST(k) */" if is_small else "",
        **{name: f"{{{name}}}" for name in ("stored", "layer", "keys")},
    )
    stored = _read_stored(spark, tables, table, version.version)
    layer = read_files(spark, source, paths(tables, source, (file.path for file in newer)))
    relations: dict[str, Any] = {"stored": stored, "layer": layer}
    if keys is not None:
        relations["keys"] = keys
    return spark.sql(sql, **relations)


def _read_stored(
    spark: SparkSession, tables: Tables, table: Table, version: int | None
) -> DataFrame:
    names = storage.sizes(tables, table, version)
    return read_files(spark, table, paths(tables, table, names))


def read_files(spark: SparkSession, table: Table, files: Collection[str]) -> DataFrame:
    """Return the rows of some files of a table."""
    if files:
        return spark.read.schema(table.ddl).parquet(*files)
    # The optimizer recognizes this as empty, unlike a frame of an empty list.
    nulls = (F.lit(None).cast(type_text(type_)).alias(name) for name, type_ in table.columns)
    return spark.range(0).where(F.lit(False)).select(*nulls)


def write(tables: Tables, table: Table, rows: DataFrame, folder: str) -> Written:
    """Write rows that have the table's columns, in any order, as files in a new folder of it.

    `rows` may lack columns of `Table.optional`, and so do the files then: they read as null. With
    `Table.grouped_by`, each file has rows of one value of that column only. ShardpostError if
    workers of Spark wrote rows where this process does not see them.
    """
    missing = {name for name, _ in table.optional} - set(rows.columns)
    ordered = rows.select(*(f"`{name}`" for name in table.names if name not in missing))
    if table.grouped_by:
        group = F.col(table.grouped_by).alias("group")
        ordered = ordered.repartition(F.col(table.grouped_by)).select("*", group)
    observed = None
    if not is_local(str(rows.sparkSession.sparkContext.master)):
        observed = Observation()
        ordered = ordered.observe(observed, F.count(F.lit(1)).alias("rows"))
    writer = ordered.write.partitionBy("group") if table.grouped_by else ordered.write
    writer = writer.option("parquet.statistics.truncate.length", str(STATISTICS_BYTES))
    for column in table.not_in_dictionaries:
        writer = writer.option(f"parquet.enable.dictionary#{column}", "false")
    writer.parquet(f"{path_of(tables, table)}/{folder}")
    written = Written(table, file_statistics.add_actions(tables, table, folder))
    if observed is not None:
        _require_all(written, observed)
    return written


def _require_all(written: Written, observed: Observation) -> None:
    """Raise ShardpostError unless all rows that Spark's tasks wrote are in these files.

    A worker without that storage writes to its own disk, and its rows would be missing.
    """
    future: Any = observed._jo.future()  # type: ignore[union-attr]
    is_known = any(future.isCompleted() for _ in attempts(COUNT_SECONDS, COUNT_POLL_SECONDS))
    rows = observed.get["rows"] if is_known else None
    if rows != written.rows:
        expected = "all rows" if rows is None else counted(rows, "row")
        raise ShardpostError(
            f"{written.table.name}: expected {expected} in the files that workers of Spark have"
            f" just written, found {written.rows}: {file_statistics.NOT_SHARED}"
        )


def paths(tables: Tables, table: Table, names: Iterable[str]) -> list[str]:
    """Return the absolute paths of files of a table."""
    root = path_of(tables, table)
    return [f"{root}/{name}" for name in names]


def _non_null(stats: dict[str, Any], column: str) -> int:
    return int(stats["numRecords"] - stats["nullCount"][column])
