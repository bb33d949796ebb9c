"""The tables under one commit point, as one run writes them.

Each write is for exactly one version, and fails if another run has written that one. Tables with a
layer are written by the first run alone: later ones are folded (holders/folding.py).
"""

import itertools
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession

from shardpost.delta import parquet_files, storage, table_log
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.delta.table import Table, Version, layered
from shardpost.holders.model.view_tables import LAYERED, SHARE_HOLDERS, SHARE_HOLDERS_CHANGES
from shardpost.spark import delta_files, driver
from shardpost.values.holding_rule import Rule


class TableWriter:
    """All tables of the view, each at the version that this run sees: `versions`, by name.

    They are in the folders that the snapshot `last` names. `run` is a new id: files that an
    interrupted run left have another one in their names. `number` is that of the snapshot that this
    run makes, by default the one after `last`.
    """

    def __init__(
        self,
        spark: SparkSession,
        where: Tables,
        versions: dict[str, int],
        last: Snapshot | None,
        number: int | None = None,
    ) -> None:
        self._before = last.number if last else 0
        self.spark = spark
        self.where = where
        self.versions = versions
        self.folders: Mapping[str, str] = last.folders if last else {}
        self.run = str(uuid.uuid4())
        self.number = self._before + 1 if number is None else number
        self._writes = itertools.count()
        self._folded = {t.name: last.folded_up_to(t.name) if last else 0 for t in LAYERED}
        self._changed = set[str]()

    def located(self, table: Table) -> Table:
        """Return a table in its folder."""
        return table.located(self.folders)

    def share(self, table: Table, folded: int | None, *, moved: bool) -> None:
        """Take a table as others write it: `folded` up to there, `moved` by rows since `last`."""
        if folded is not None:
            self._folded[table.name] = folded
        if moved:
            self._changed.add(table.name)

    @property
    def folded(self) -> Mapping[str, int]:
        """`Snapshot.folded` of the snapshot that has what was written so far."""
        now = {table: self._folded_up_to(table) for table in LAYERED}
        return {table.name: at for table, at in now.items() if at < self.number}

    def at(self, table: Table) -> Version:
        """Return the version of a table as this run sees it, with all that it has written."""
        if table.layer is None or self._folded_up_to(table) == self.number:
            return self.versions[table.name]
        return layered(table, self.versions, self._folded[table.name])

    def seen(self, *tables: Table) -> dict[Table, Version]:
        """Return tables as this run sees them, as `query` takes them."""
        return {self.located(table): self.at(table) for table in tables}

    def read(self, table: Table) -> DataFrame:
        """Return a table as this run sees it."""
        return delta_files.read(self.spark, self.where, self.located(table), self.at(table))

    def is_empty(self, table: Table) -> bool:
        """Tell whether this is the first run, and has no rows yet: it writes the table's files.

        Other readers are not to read it before it has the properties of a fold.
        """
        versions = self.where, self.located(table), self.versions[table.name]
        return not self._before and not storage.sizes(*versions)

    def append(
        self, table: Table, rows: DataFrame | pa.Table, *, coalesce: bool = True
    ) -> delta_files.Written:
        """Add rows that have the table's columns; return its new files.

        With `coalesce` they are as few as the cores, else as many as the partitions of a frame. In
        the same version, small files of earlier runs are merged where there are many; files of
        changes that the table of holders has go.
        """
        written = self._write(table, rows, coalesce)
        there, version = self.located(table), self.versions[table.name]
        merged, old = list[AddAction](), list[str]()
        if table == SHARE_HOLDERS_CHANGES:
            files = storage.row_files(storage.opened(self.where, there, version), "snapshot")
            folded = self._folded[SHARE_HOLDERS.name]
            old = [file.path for file in files if file.highest <= folded]
        if not old:
            folder = self._new_folder(table)
            merged, old = parquet_files.merge_small(self.where, there, version, folder)
        self._commit(table, [*written.files, *merged], old)
        if written.files:
            self._note_change(table)
        return written

    def rewrite(
        self, table: Table, written: delta_files.Written, rows: DataFrame, *, coalesce: bool
    ) -> delta_files.Written:
        """Write rows in the place of files that this run has appended; return the new files."""
        again = self._write(table, rows, coalesce)
        self._commit(table, again.files, [file.path for file in written.files])
        return again

    def copy(self, table: Table, source: Table, paths: Collection[str]) -> None:
        """Add files that `source` has, a table of the same columns: copies, as they are."""
        folder = self._new_folder(table)
        made = parquet_files.copy(self.where, source, paths, self.located(table), folder)
        self._commit(table, made, ())
        self._note_change(table)

    def write_first(
        self, table: Table, rows: DataFrame, *, coalesce: bool = True
    ) -> delta_files.Written:
        """Write the files of an empty table, which then have all of this run so far."""
        written = self.append(table, rows, coalesce=coalesce)
        self._folded[table.name] = self.number
        return written

    def rows_of(self, written: delta_files.Written) -> DataFrame:
        """Return the rows of new files."""
        names = (file.path for file in written.files)
        files = delta_files.paths(self.where, written.table, names)
        return delta_files.read_files(self.spark, written.table, files)

    def _folded_up_to(self, table: Table) -> int:
        """Return up to which snapshot a table's files have all; this one if nothing came since."""
        folded = self._folded[table.name]
        is_same = table.layer_source.name not in self._changed
        return self.number if is_same and folded == self._before else folded

    def _write(
        self, table: Table, rows: DataFrame | pa.Table, coalesce: bool
    ) -> delta_files.Written:
        there, folder = self.located(table), self._new_folder(table)
        if isinstance(rows, pa.Table):
            made = parquet_files.write_grouped(self.where, there, rows, folder)
            return delta_files.Written(there, made)
        if coalesce:
            rows = rows.coalesce(self.spark.sparkContext.defaultParallelism)
        return delta_files.write(self.where, there, rows, folder)

    def _new_folder(self, table: Table) -> str:
        # A write without rows makes no version: the next one needs a folder of its own, too.
        return f"{self.versions[table.name] + 1:08d}-{self.run}-{next(self._writes)}"

    def _commit(self, table: Table, added: Collection[AddAction], removed: Collection[str]) -> None:
        before = self.versions[table.name]
        after = table_log.commit(self.where, self.located(table), before, added, removed)
        self.versions[table.name] = after

    def _note_change(self, table: Table) -> None:
        """Remember that rows were added to a table, which lie in the layer of others."""
        self._changed.add(table.name)
        # What was written first, or folded, in this run lacks what comes after it.
        for other in LAYERED:
            if other.layer_source == table:
                self._folded[other.name] = min(self._folded[other.name], self._before)


@dataclass(frozen=True)
class HoldersRun:
    """A run after the snapshot `last`, None of empty tables, that writes the tables of the next.

    `rule` says who holds from this run on, `shards` are the partitions of
    `share-holders`; `few`: it is about a few keys, which are looked up without Spark.
    """

    tables: TableWriter
    last: Snapshot | None
    rule: Rule
    shards: int
    few: bool

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self.tables.spark

    @property
    def number(self) -> int:
        """The number of the snapshot that has what this run writes."""
        return self.tables.number

    def plan_for_rows_of(self, table: Table) -> None:
        """Choose how plans are made from now on that read a whole table, or much of it."""
        there, version = self.tables.located(table), self.tables.versions[table.name]
        rows = sum(storage.rows(self.tables.where, there, version).values())
        driver.plan_for(self.spark, rows)
