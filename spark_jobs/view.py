"""The tables under one commit point, as one run writes them.

Each write is checked by its version.
"""

import logging

from delta.tables import DeltaTable as SparkDeltaTable
from deltalake import DeltaTable, Schema
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from shardpost.adapters.delta import path_of
from shardpost.domain.snapshot import Snapshot
from shardpost.domain.tables import VIEW, Table
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from spark_jobs.session import read

log = logging.getLogger(__name__)


class View:
    """All tables of the view, at the last snapshot's versions, then at those this run wrote."""

    def __init__(self, spark: SparkSession, settings: Settings, last: Snapshot | None) -> None:
        self._spark = spark
        self._settings = settings
        self.versions = {table.name: self._at_last(table, last) for table in VIEW}

    def read(self, table: Table) -> DataFrame:
        """Return a table as this run sees it."""
        return read(self._spark, self._settings, table, self.versions[table.name])

    def append(self, table: Table, rows: DataFrame) -> None:
        """Append rows that have the table's columns, in any order."""
        writer = rows.write.format("delta").mode("append").partitionBy(*table.partitioned_by)
        writer.save(path_of(self._settings, table))
        self._wrote(table)

    def upsert(
        self, table: Table, rows: DataFrame, keys: tuple[str, ...], columns: list[str]
    ) -> None:
        """Merge rows into a table by its keys, writing those columns."""
        target = SparkDeltaTable.forPath(self._spark, path_of(self._settings, table))
        values: dict[str, str | Column] = {name: f"new.{name}" for name in columns}
        (
            target.alias("old")
            .merge(rows.alias("new"), " AND ".join(f"old.{key} = new.{key}" for key in keys))
            .whenMatchedUpdate(set=values)
            .whenNotMatchedInsert(values=values)
            .execute()
        )
        self._wrote(table)

    def _at_last(self, table: Table, last: Snapshot | None) -> int:
        path = path_of(self._settings, table)
        if not DeltaTable.is_deltatable(path):
            self._create(table, path)
        now = DeltaTable(path).version()
        # A table is created empty, as its version 0.
        committed = last.tables.get(table.name, 0) if last else 0
        if now == committed:
            return now
        log.info("%s: putting back version %d, left by a run that was broken off", table.name, now)
        SparkDeltaTable.forPath(self._spark, path).restoreToVersion(committed)
        return DeltaTable(path).version()

    def _create(self, table: Table, path: str) -> None:
        days = f"interval {self._settings.snapshot_days} days"
        DeltaTable.create(
            path,
            Schema.from_json(StructType.fromDDL(table.columns).json()),
            partition_by=list(table.partitioned_by),
            configuration={
                "delta.logRetentionDuration": days,
                "delta.deletedFileRetentionDuration": days,
            },
        )

    def _wrote(self, table: Table) -> None:
        # Delta adds no version where there was nothing to write.
        before = self.versions[table.name]
        found = DeltaTable(path_of(self._settings, table)).version()
        if found not in (before, before + 1):
            raise ShardpostError(
                f"{table.name}: expected to have written version {before + 1}, found {found}:"
                " another run writes to these tables; this one stops and commits nothing"
            )
        self.versions[table.name] = found
