"""The tables under one commit point, as one run writes them.

Each write is for exactly one version, and fails if another run has written that one.
"""

import itertools
from collections.abc import Collection
from urllib.parse import unquote

from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta import parquet_files, table_log
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.holders.model.tables import VIEW
from shardpost.holders.spark.restore_tables import restore_table
from shardpost.settings import Settings
from shardpost.spark import delta_files

# The column of `read_with_files` that says which file a row is in.
FILE = "file"
# Once a table has more small files than that (times its groups), its next upsert merges them.
MAX_SMALL_FILES = 16
SMALL_FILE_BYTES = 8 << 20


class TableWriter:
    """All tables of the view, each at the version that this run sees: `versions`, by name.

    `run` is an id: files that an interrupted run left have another one in their names.
    """

    def __init__(
        self, spark: SparkSession, settings: Settings, versions: dict[str, int], run: str
    ) -> None:
        self.spark = spark
        self.versions = versions
        self.run = run
        self._settings = settings
        self._writes = itertools.count()

    @classmethod
    def at_snapshot(
        cls, spark: SparkSession, settings: Settings, last: Snapshot | None, run: str
    ) -> "TableWriter":
        """Return a writer of the tables as that snapshot has them; missing ones are created.

        What an interrupted run left after the snapshot is undone. ShardpostError if a table of the
        snapshot does not exist.
        """
        versions = {table.name: restore_table(settings, table, last) for table in VIEW}
        return cls(spark, settings, versions, run)

    def read(self, table: Table) -> DataFrame:
        """Return a table as this run sees it."""
        return delta_files.read(self.spark, self._settings, table, self.versions[table.name])

    def is_empty(self, table: Table) -> bool:
        """Tell whether a table has no rows yet, as this run sees it."""
        return not table_log.sizes(self._settings, table, self.versions[table.name])

    def read_with_files(self, table: Table) -> DataFrame:
        """Return a table with the further column FILE, the URI of the file that a row is in."""
        if self.is_empty(table):
            return self.read(table).withColumn(FILE, F.lit(None).cast("string"))
        return self.read(table).select("*", F.col("_metadata.file_path").alias(FILE))

    def append(
        self, table: Table, rows: DataFrame, *, coalesce: bool = True
    ) -> delta_files.Written:
        """Add rows that have the table's columns; return its new files.

        With `coalesce` they are as few as the cores, else as many as the partitions of `rows`. In
        the same version, small files of earlier runs are merged where there are many.
        """
        written = self._write(table, rows, coalesce)
        version = self.versions[table.name]
        merged, old = parquet_files.merge_small(
            self._settings, table, version, self._new_folder(table)
        )
        self._commit(table, [*written.files, *merged], old)
        return written

    def rows_of(self, written: delta_files.Written) -> DataFrame:
        """Return the rows of new files."""
        return delta_files.read_written(self.spark, self._settings, written)

    def upsert(
        self, table: Table, rows: DataFrame, old_files: Collection[str], *, broadcast_keys: bool
    ) -> None:
        """Write rows in place of those with the same key (the first column).

        `old_files` are the values of FILE of the rows to replace; these files are rewritten without
        them, and so are small files once there are too many. `rows` are read twice.
        """
        replaced = [unquote(uri).rpartition(f"/{table.name}/")[2] for uri in old_files]
        replaced = [*{*replaced, *self._small_files_to_merge(table)}]
        if replaced:
            files = delta_files.paths(self._settings, table, replaced)
            old = delta_files.read_files(self.spark, table, files)
            key = rows.columns[0]
            keys = rows.select(key)
            kept = old.join(F.broadcast(keys) if broadcast_keys else keys, key, "left_anti")
            rows = kept.unionByName(rows)
        self._commit(table, self._write(table, rows, coalesce=broadcast_keys).files, replaced)

    def _small_files_to_merge(self, table: Table) -> list[str]:
        sizes = table_log.sizes(self._settings, table, self.versions[table.name])
        small = [path for path, size in sizes.items() if size < SMALL_FILE_BYTES]
        groups = {path.split("/")[1] for path in small} if table.grouped_by else {""}
        return small if len(small) > MAX_SMALL_FILES * len(groups) else []

    def _write(self, table: Table, rows: DataFrame, coalesce: bool) -> delta_files.Written:
        if coalesce:
            rows = rows.coalesce(self.spark.sparkContext.defaultParallelism)
        return delta_files.write(self._settings, table, rows, self._new_folder(table))

    def _new_folder(self, table: Table) -> str:
        # A write without rows makes no version: the next one needs a folder of its own, too.
        return f"{self.versions[table.name] + 1:08d}-{self.run}-{next(self._writes)}"

    def _commit(self, table: Table, added: Collection[AddAction], removed: Collection[str]) -> None:
        before = self.versions[table.name]
        after = table_log.commit(self._settings, table, before, added, removed)
        self.versions[table.name] = after
