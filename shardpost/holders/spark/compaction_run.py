"""What all steps of one compaction share: the run, and what the last tables have of its keys."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import OpenedTables
from shardpost.delta.table import Table
from shardpost.holders.inputs import registry_of
from shardpost.holders.model.input_mapping import InputMapping, Mappings
from shardpost.holders.model.record_order import COUNTS, Numbering, judged_by
from shardpost.holders.model.topic_state import Unread
from shardpost.holders.model.view_tables import INPUTS, InputTables
from shardpost.holders.spark.table_writer import HoldersRun
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.records import OffsetRange
from shardpost.kafka.schema_registry import SchemaRegistry
from shardpost.spark import delta_files
from shardpost.values.topic_names import TopicName

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
    tables: InputTables
    mapping: InputMapping | None = None
    registry: SchemaRegistry | None = None


def inputs_of(installation: Installation, mappings: Mappings) -> list[InputTopic]:
    """Return the inputs of an installation, whose records look so."""
    topic = installation.kafka.topic
    asked = {one: registry_of(installation, one, mapping) for one, mapping in mappings.items()}
    inputs = INPUTS.items()
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
