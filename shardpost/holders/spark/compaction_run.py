"""What all steps of one compaction share: the run, and what the last tables have of its keys.

Of a few keys that is read without Spark: to look for ten thousand keys in ten million rows takes
DataFusion half a second, and Spark, whose code is not compiled yet in a short run, ten times that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shardpost.delta import query
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.table import LayeredVersion, Table, Version, text_literal
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import Numbering
from shardpost.holders.model.unread import Unread
from shardpost.holders.model.view_tables import INPUTS, SHARE_HOLDERS, InputTables
from shardpost.holders.spark.table_writer import HoldersRun
from shardpost.kafka.coordinates import OffsetRange
from shardpost.spark import delta_files, driver
from shardpost.spark.kafka_source import ReadRanges
from shardpost.topic_names import TopicName


def totals(frame: DataFrame, *expressions: str) -> list[int]:
    """Return the sums of SQL expressions."""
    sums = frame.agg(*(F.sum(F.expr(expression)) for expression in expressions)).first()
    return [int(total or 0) for total in sums or ()]


# Up to so many new records, their keys are broadcast rather than tables shuffled.
MAX_BROADCAST_KEYS = driver.FEW_RECORDS


@dataclass(frozen=True)
class InputTopic:
    """One input: its name in the contract, its topic in this installation, and its tables."""

    name: TopicName
    topic: str
    tables: InputTables


@dataclass(frozen=True)
class CompactionRun(HoldersRun):
    """A compaction: `partitions` is {topic: their number}, `read_ranges` reads what is `unread`."""

    partitions: Mapping[str, int]
    unread: Unread
    read_ranges: ReadRanges

    @property
    def set_country(self) -> str | None:
        """`Snapshot.set_country` of the snapshot that this run makes."""
        return self.settings.country if self.settings.country != self.country else None

    @property
    def inputs(self) -> list[InputTopic]:
        """The inputs of this installation."""
        return [
            InputTopic(name, self.settings.topic(name), tables) for name, tables in INPUTS.items()
        ]

    def generation(self, source: InputTopic) -> int:
        """Return how many times the topic of an input was recreated."""
        return self.unread.generations.get(source.name, 0)

    def numbering(self, source: InputTopic) -> Numbering:
        """Return how the records of an input that are read are numbered."""
        read, ends = (at.get(source.topic, {}) for at in (self.unread.read, self.unread.ends))
        return Numbering.of(self.generation(source), read, ends)

    def records_of(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Return the records in ranges of one topic, with the columns of kafka_source.py."""
        return self.read_ranges(self.spark, self.settings, ranges)


# Of the tables of latest records: by these it is judged what a new record changes.
JUDGED_BY = ("key", "partition", "seq", "retry_offset", "is_open", "client", "exchange")
# So many clients are listed in one query, and so much of what is known of them is held in memory
# here; of more, Spark reads it.
MAX_LISTED = 20_000
MAX_BYTES = 64 << 20


def known_latest(run: CompactionRun, tables: InputTables, latest: DataFrame) -> DataFrame:
    """Return what is known of the keys of `latest`, one row each: columns of JUDGED_BY.

    All of `latest` is in the history as records of this run.
    """
    table, history = tables.latest, tables.history
    columns = [name for name in table.names if name in JUDGED_BY]
    if run.last is None:
        return delta_files.read_files(run.spark, table, ()).select(*columns)
    at, there = run.last.layered(table), run.last.located(table)
    if not run.broadcast_keys:
        known = delta_files.read(run.spark, run.settings, there, at, latest.select("key"))
        return known.select(*columns)
    keys = (
        f"SELECT DISTINCT r.key FROM {history.name} r WHERE r.snapshot = {run.number}"  # noqa: S608
        f" AND r.kind <> {text_literal(RecordKind.REJECTED)}"
    )
    versions: dict[Table, Version] = {
        run.tables.located(history): run.tables.versions[history.name],
        there: replace(at, keys=keys),
    }
    sql = f"SELECT {', '.join(columns)} FROM {table.name}"  # noqa: S608 - names of ours
    return frame_of(run, table, query.query(run.settings, sql, versions))


def known_holders(run: HoldersRun, touched: DataFrame, *, few: bool) -> DataFrame:
    """Return (client, positions) that are known of the touched clients.

    `touched` has each once, in its column `client`; with `few` they are counted.
    """
    clients, columns = touched.select("client"), ("client", "positions")
    if run.last is None:
        return delta_files.read_files(run.spark, SHARE_HOLDERS, ()).select(*columns)
    at = run.last.layered(SHARE_HOLDERS)
    if few and (found := _listed_holders(run, at, clients)) is not None:
        return frame_of(run, SHARE_HOLDERS, found)
    there = run.last.located(SHARE_HOLDERS)
    known = delta_files.read(run.spark, run.settings, there, at, clients)
    return known.select(*columns)


def _listed_holders(run: HoldersRun, at: LayeredVersion, clients: DataFrame) -> pa.Table | None:
    """Return (client, positions) of clients; None if they are too many, or have too much."""
    listed = [row["client"] for row in clients.limit(MAX_LISTED + 1).collect()]
    if len(listed) > MAX_LISTED:
        return None
    none: pa.Table = arrow_schema(SHARE_HOLDERS).empty_table().select(["client", "positions"])
    if not listed:
        return none
    values = ", ".join(f"({text_literal(client)})" for client in listed)
    keys = f"SELECT v.column1 AS client FROM (VALUES {values}) v"  # noqa: S608 - literals
    batches, size = [], 0
    sql = "SELECT client, positions FROM share_holders"
    there = run.tables.located(SHARE_HOLDERS)
    for batch in query.stream(run.settings, sql, {there: replace(at, keys=keys)}):
        size += batch.nbytes
        if size > MAX_BYTES:
            return None
        batches.append(batch)
    return pa.Table.from_batches(batches) if batches else none


def frame_of(run: HoldersRun, table: Table, table_rows: pa.Table) -> DataFrame:
    """Return rows as a frame; DataFusion's types of texts and lists are others than Spark's."""
    schema = arrow_schema(table)
    fields = pa.schema([schema.field(name) for name in table_rows.column_names])
    return run.spark.createDataFrame(table_rows.cast(fields))
