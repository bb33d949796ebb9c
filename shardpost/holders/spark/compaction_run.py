"""What all steps of one compaction share: the tables under one commit point as it writes them.

And the run, and what the last tables have of its keys. Each write is for exactly one version, and
fails if another run has written that one. Tables with a layer are written by the first run alone:
later ones are folded (holders/folding.py).
"""

import itertools
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta import parquet_files, storage, table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import OpenedTables
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table, Version, layered
from shardpost.holders.inputs import registry_of
from shardpost.holders.model import view_tables as t
from shardpost.holders.model.input_mapping import InputMapping, Mappings
from shardpost.holders.model.record_order import COUNTS, Numbering, judged_by
from shardpost.holders.model.topic_state import Unread
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.records import OffsetRange
from shardpost.kafka.schema_registry import SchemaRegistry
from shardpost.spark import delta_files, driver
from shardpost.values.holding_rule import Rule
from shardpost.values.topic_names import TopicName


class TableWriter:
    """All tables of the view, each at the version that this run sees: `versions`, by name.

    They are in the folders that the snapshot `last` names. `run` is a new id: files that an
    interrupted run left have another one in their names. `number` is that of the snapshot that this
    run makes, by default the one after `last`.
    """

    def __init__(
        self,
        spark: SparkSession,
        where: storage.Tables,
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
        self._folded = {one.name: last.folded_up_to(one.name) if last else 0 for one in t.LAYERED}
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
        now = {table: self._folded_up_to(table) for table in t.LAYERED}
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
        if table == t.SHARE_HOLDERS_CHANGES:
            files = storage.row_files(storage.opened(self.where, there, version), "snapshot")
            folded = self._folded[t.SHARE_HOLDERS.name]
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
        for other in t.LAYERED:
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


# Reads the records in ranges of one topic.
ReadRecords = Callable[[Sequence[OffsetRange]], DataFrame]


def totals(frame: DataFrame, *expressions: str) -> list[int]:
    """Return the sums of SQL expressions."""
    sums = frame.agg(*(F.sum(F.expr(expression)) for expression in expressions)).first()
    return [int(total or 0) for total in sums or ()]


@dataclass(frozen=True)
class InputTopic:
    """One input: its name in the contract, its topic in this installation, and its tables.

    And how its records look, if they are not plain, and where their schemas are.
    """

    name: TopicName
    topic: str
    tables: t.InputTables
    mapping: InputMapping | None = None
    registry: SchemaRegistry | None = None


def inputs_of(installation: Installation, mappings: Mappings) -> list[InputTopic]:
    """Return the inputs of an installation, whose records look so."""
    topic = installation.kafka.topic
    named = ((one, mapping.registry) for one, mapping in mappings.items())
    asked = {one: registry_of(installation, one, at) for one, at in named if at}
    inputs = t.INPUTS.items()
    return [InputTopic(n, topic(n), its, mappings.get(n), asked.get(n)) for n, its in inputs]


@dataclass(frozen=True)
class CompactionRun(HoldersRun):
    """A compaction: `partitions` is {topic: their number}, `records_of` reads ranges of one topic.

    Records have the columns of kafka_source.py; `unread` are those that are to be read.
    `in_memory`: all records of that are, and what is decoded of them may be as well.
    """

    kafka: Kafka
    partitions: Mapping[str, int]
    unread: Unread
    records_of: ReadRecords
    in_memory: bool = False

    def generation(self, source: InputTopic) -> int:
        """Return how many times the topic of an input was recreated."""
        return self.unread.generations.get(source.name, 0)

    def numbering(self, source: InputTopic) -> Numbering:
        """Return how the records of an input that are read are numbered."""
        read, ends = (at.get(source.topic, {}) for at in (self.unread.read, self.unread.ends))
        numbering = Numbering.of(self.generation(source), read, ends)
        shares_ids = source.mapping is not None and source.mapping.shares_ids
        return replace(numbering, shares_ids=shares_ids)


def known_rows(run: HoldersRun, table: Table, rows: DataFrame, key: str) -> DataFrame:
    """Return what the last snapshot has of the keys of rows, each once in that column."""
    if run.last is None:
        return delta_files.read_files(run.spark, table, ())
    at, there = run.last.layered(table), run.last.located(table)
    return delta_files.read(run.spark, run.tables.where, there, at, rows.select(key))


@dataclass(frozen=True)
class FewRows:
    """Rows in memory, which DataFusion has too: `select` finds them among those that are opened."""

    rows: pa.Table
    opened: OpenedTables
    select: str

    @classmethod
    def compared(
        cls, opened: OpenedTables, table: Table, sql: str, condition: str = "true"
    ) -> "FewRows":
        """Return what a SELECT of `compared` finds that meets a condition, in the types of Spark.

        Not in one: DataFusion would take the condition for one of a side (view_tables.py).
        """
        opened.keep("few_rows", sql)
        select = f"SELECT * FROM few_rows WHERE {condition}"  # noqa: S608 - ours
        whole, names = arrow_schema(table), judged_by(table)
        own = [whole.field(name) for name in ("offset", *names)]
        old = [whole.field(name).with_name(f"old_{name}") for name in names]
        made = [("is_newer", pa.bool_()), *((name, pa.int64()) for name in COUNTS)]
        schema = pa.schema([*own, *old, *(pa.field(*one) for one in made)])
        return cls(opened.query(select).cast(schema), opened, select)

    def sum(self, name: str) -> int:
        """Return the sum of a column of numbers; 0 of no rows."""
        return int(pc.sum(self.rows[name]).as_py() or 0)

    def query(self, sql: str) -> pa.Table:
        """Return what a SELECT of {changed} rows finds, which are these."""
        return self.opened.query(sql.format(changed=f"({self.select})"))


def as_frame(run: HoldersRun, rows: DataFrame | FewRows) -> DataFrame:
    """Return rows as a frame, wherever they are."""
    return rows if isinstance(rows, DataFrame) else run.spark.createDataFrame(rows.rows)
