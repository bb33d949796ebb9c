"""The tables under one commit point, as one run writes them.

Each write is for exactly one version, and fails if another run wrote it.
"""

import logging
from collections.abc import Collection
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta import table_log
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders.model.tables import VIEW
from shardpost.settings import Settings
from shardpost.spark import delta_files

log = logging.getLogger(__name__)

# The file that a row was read from.
FILE = "file"
# Once a table has more than so many files smaller than so many bytes (for each of its groups), the
# next change of it writes them anew, together.
MANY = 16
SMALL = 8 << 20


class TableWriter:
    """All tables of the view, at the last snapshot's versions, then at those this run wrote."""

    def __init__(
        self, spark: SparkSession, settings: Settings, last: Snapshot | None, run: str
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._run = run
        self.versions = {table.name: self._at_last(table, last) for table in VIEW}

    def read(self, table: Table) -> DataFrame:
        """Return a table as this run sees it."""
        return delta_files.read(self._spark, self._settings, table, self.versions[table.name])

    def is_empty(self, table: Table) -> bool:
        """Tell whether a table has no row yet, as this run sees it."""
        return not table_log.sizes(self._settings, table, self.versions[table.name])

    def read_with_files(self, table: Table) -> DataFrame:
        """Return a table with one column more, `FILE`: from which file each row is."""
        if self.is_empty(table):
            return self.read(table).withColumn(FILE, F.lit(None).cast("string"))
        return self.read(table).select("*", F.col("_metadata.file_path").alias(FILE))

    def append(self, table: Table, rows: DataFrame, *, few: bool = True) -> delta_files.Written:
        """Add rows that have the table's columns; return its new files."""
        written = self._write(table, rows, few)
        self._commit(table, written, removed=())
        return written

    def rows_of(self, written: delta_files.Written) -> DataFrame:
        """Return the rows of new files."""
        return delta_files.read_written(self._spark, self._settings, written)

    def upsert(
        self, table: Table, rows: DataFrame, old_files: Collection[str], *, few: bool
    ) -> None:
        """Write rows in place of those with the same key, which are in those files.

        The first column is the key, a file is what `FILE` says. `rows` are read twice.
        """
        version = self.versions[table.name]
        sizes = table_log.sizes(self._settings, table, version)
        replaced = [unquote(uri).rpartition(f"/{table.name}/")[2] for uri in old_files]
        small = [path for path, size in sizes.items() if size < SMALL]
        groups = {path.split("/")[1] for path in small} if table.grouped_by else {""}
        if len(small) > MANY * len(groups):
            replaced = list({*replaced, *small})
        if replaced:
            files = delta_files.paths(self._settings, table, replaced)
            old = delta_files.read_files(self._spark, table, files)
            key = rows.columns[0]
            keys = rows.select(key)
            kept = old.join(F.broadcast(keys) if few else keys, key, "left_anti")
            rows = kept.unionByName(rows)
        self._commit(table, self._write(table, rows, few), replaced)

    def _write(self, table: Table, rows: DataFrame, few: bool) -> delta_files.Written:
        if few:  # and so into few files
            rows = rows.coalesce(self._spark.sparkContext.defaultParallelism)
        folder = f"{self.versions[table.name] + 1:08d}-{self._run}"
        return delta_files.write(self._settings, table, rows, folder)

    def _commit(self, table: Table, written: delta_files.Written, removed: Collection[str]) -> None:
        before = self.versions[table.name]
        after = table_log.commit(self._settings, table, before, written.files, removed)
        self.versions[table.name] = after

    def _at_last(self, table: Table, last: Snapshot | None) -> int:
        # A table is created empty, as its version 0.
        committed = last.tables.get(table.name, 0) if last else 0
        now = table_log.newest_version(self._settings, table)
        if now is None and committed:
            raise ShardpostError(
                f"no table {table.name} in {self._settings.tables_root}: snapshot"
                f" {last.number if last else 0} is of its version {committed}; bring it back from a"
                " backup, or compact into empty tables (another SHARDPOST_TABLES) and an empty"
                " topic share-holders (another SHARDPOST_TOPIC_SHARE_HOLDERS)"
            )
        if now is None:
            table_log.create(self._settings, table, self._settings.snapshot_days)
            return 0
        if now != committed:
            log.info("%s: putting back version %d: a run was broken off", table.name, now)
            now = table_log.restore(self._settings, table, committed)
        return table_log.add_missing_columns(self._settings, table, now)


def summed(frame: DataFrame, *expressions: str) -> tuple[list[int], list[str]]:
    """Return the sums over a frame, and the files that its rows were in before (`old_file`)."""
    found = frame.agg(F.collect_set("old_file"), *map(_sum, expressions)).first()
    files, *totals = found or ([],)
    return [int(total) for total in totals], files


def total(frame: DataFrame, expression: str) -> int:
    """Return the sum over a frame."""
    found = frame.agg(_sum(expression)).first()
    return int(found[0]) if found else 0


def _sum(expression: str) -> Column:
    return F.coalesce(F.sum(F.expr(expression)), F.lit(0))
