"""Delta tables as Spark sees them here: the Parquet files that one version of a log names.

Spark writes and reads files; delta/table_log.py commits them.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from shardpost.delta import table_log
from shardpost.delta.query import path_of
from shardpost.delta.table import Table
from shardpost.settings import Settings


@dataclass(frozen=True)
class Written:
    """Files that were just written, and what their footers say of them."""

    table: Table
    files: list[AddAction]

    def least(self, column: str) -> Any:
        """Return the lowest value of a column of numbers; None without any."""
        with_values = (stats for stats in self._stats() if _given(stats, column))
        return min((stats["minValues"][column] for stats in with_values), default=None)

    def given(self, column: str) -> int:
        """Return how many rows have a value in a column."""
        return sum(_given(stats, column) for stats in self._stats())

    def _stats(self) -> Iterator[dict[str, Any]]:
        return (json.loads(file.stats) for file in self.files)


def columns_of(table: Table) -> list[str]:
    """Return the names of a table's columns."""
    return list(_struct(table).names)


def read(spark: SparkSession, settings: Settings, table: Table, version: int) -> DataFrame:
    """Return a table at one version, as a snapshot names it."""
    names = table_log.sizes(settings, table, version)
    return read_files(spark, table, paths(settings, table, names))


def read_files(spark: SparkSession, table: Table, files: Collection[str]) -> DataFrame:
    """Return the rows of some files of a table."""
    if files:
        return spark.read.schema(table.columns).parquet(*files)
    # Unlike an empty list of rows, the optimizer sees that this is empty.
    columns = _struct(table).fields
    nothing = (F.lit(None).cast(field.dataType).alias(field.name) for field in columns)
    return spark.range(0).where(F.lit(False)).select(*nothing)


def read_written(spark: SparkSession, settings: Settings, written: Written) -> DataFrame:
    """Return the rows of files that were just written."""
    return read_files(spark, written.table, paths(settings, written.table, _names(written.files)))


def write(settings: Settings, table: Table, rows: DataFrame, folder: str) -> Written:
    """Write rows that have the table's columns, in any order, as files in a new folder of it.

    A file may lack columns of `Table.added`, which are null then: most rows have no use for them.
    With `Table.grouped_by`, each file holds rows of one value of that column only.
    """
    lacking = {name for name, _ in table.added} - set(rows.columns)
    ordered = rows.select(*(f"`{name}`" for name in columns_of(table) if name not in lacking))
    if table.grouped_by:
        group = F.col(table.grouped_by).alias("group")
        grouped = ordered.repartition(F.col(table.grouped_by)).select("*", group)
        writer = grouped.write.partitionBy("group")
    else:
        writer = ordered.write
    for column in table.not_in_dictionaries:
        writer = writer.option(f"parquet.enable.dictionary#{column}", "false")
    writer.parquet(f"{path_of(settings, table)}/{folder}")
    return Written(table, table_log.written(settings, table, folder))


def paths(settings: Settings, table: Table, names: Iterable[str]) -> list[str]:
    """Return where files of a table are."""
    root = path_of(settings, table)
    return [f"{root}/{name}" for name in names]


def _given(stats: dict[str, Any], column: str) -> int:
    return int(stats["numRecords"] - stats["nullCount"][column])


def _struct(table: Table) -> StructType:
    return cast("StructType", StructType.fromDDL(table.columns))


def _names(files: Iterable[AddAction]) -> list[str]:
    return [file.path for file in files]
