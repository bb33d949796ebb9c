"""The latest record of each key of an input, and what it changes.

What the last snapshot's tables have of the keys that a run is about.

Of a few keys that is read without Spark: to look for ten thousand keys in ten million rows takes
DataFusion half a second, and Spark, whose code is not compiled yet in a short run, ten times that.

The latest record of each key of an input: of its new records, and what they change.
"""

from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.delta import query
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.layers import LayeredVersion, Version, layered
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.sql import text_literal
from shardpost.delta.table import Table
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import RETRIES_READ_TOGETHER
from shardpost.holders.model.view_tables import SHARE_HOLDERS, InputTables
from shardpost.holders.spark import fold
from shardpost.holders.spark.compaction_run import CompactionRun, HoldersRun, totals
from shardpost.holders.spark.history import Appended
from shardpost.spark import delta_files
from shardpost.spark.delta_files import columns_of

# Of the tables of latest records: by these it is judged what a new record changes.
JUDGED_BY = ("key", "seq", "retry_offset", "is_open", "client", "exchange")
# So many clients are listed in one query, and so much of what is known of them is held in memory
# here; of more, Spark reads it.
MAX_LISTED = 20_000
MAX_BYTES = 64 << 20


def known_latest(run: CompactionRun, tables: InputTables, latest: DataFrame) -> DataFrame:
    """Return what is known of the keys of `latest`, one row each: columns of JUDGED_BY.

    All of `latest` is in the history as records of this run.
    """
    table, history = tables.latest, tables.history
    columns = [name for name in columns_of(table) if name in JUDGED_BY]
    if run.last is None:
        return delta_files.read_files(run.spark, table, ()).select(*columns)
    at, there = _version_at(run.last, table), run.last.located(table)
    if not run.broadcast_keys:
        found = delta_files.read_keys(run.spark, run.settings, there, at, latest.select("key"))
        return found.select(*columns)
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
    at = _version_at(run.last, SHARE_HOLDERS)
    if few and (found := _listed_holders(run, at, clients)) is not None:
        return frame_of(run, SHARE_HOLDERS, found)
    there = run.last.located(SHARE_HOLDERS)
    known = delta_files.read_keys(run.spark, run.settings, there, at, clients)
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


def _version_at(last: Snapshot, table: Table) -> LayeredVersion:
    """Return the version of a table in a form that keys can be given to."""
    return layered(table, last.tables, last.folded_up_to(table.name))


def frame_of(run: HoldersRun, table: Table, found: pa.Table) -> DataFrame:
    """Return rows as a frame; DataFusion's types of texts and lists are others than Spark's."""
    schema = arrow_schema(table)
    fields = pa.schema([schema.field(name) for name in found.column_names])
    return run.spark.createDataFrame(found.cast(fields))


# Up to so many new records of a topic, the coordinates of the latest ones are broadcast: some 30
# bytes each, in the driver's memory too.
MAX_BROADCAST_COORDINATES = 20_000_000
_RETRIES = "cast(retry_offset is not null as int)"
_OPENED = "cast(is_open as int) - coalesce(cast(old_is_open as int), 0)"


@dataclass(frozen=True)
class Changes:
    """The changes of a table of latest records: the rows of `fold.changes`, which stay as they are.

    `opened` is how many more of the table's rows are open than before; `retries` is how many of the
    changes are by retries.
    """

    rows: DataFrame
    opened: int
    retries: int


def latest_of_originals(
    run: CompactionRun, table: Table, originals: Appended, offsets: int
) -> DataFrame:
    """Return the latest of so many new originals per key, as rows of the table."""
    broadcast_coordinates = (
        originals.in_current_partition
        and not run.broadcast_keys
        and offsets <= MAX_BROADCAST_COORDINATES
    )
    latest = (
        fold.latest_in_current_partition(originals.rows)
        if broadcast_coordinates
        else fold.latest_per_key(originals.rows, broadcast_keys=run.broadcast_keys)
    )
    return fold.as_rows(latest, columns_of(table))


def latest_with_corrections(
    table: Table, latest: DataFrame | None, corrections: Appended
) -> DataFrame:
    """Return the latest per key of the originals' latest, if any, and of decodable corrections."""
    decodable = corrections.rows.where(F.col("kind") != RecordKind.REJECTED.value)
    columns = columns_of(table)
    rows = fold.as_rows(decodable, [*columns, *(set(RETRIES_READ_TOGETHER) - {*columns})])
    if latest is not None:
        rows = rows.unionByName(latest, allowMissingColumns=True)
    return fold.latest_with_retries(rows).select(*columns)


def changed_latest(run: CompactionRun, tables: InputTables, latest: DataFrame) -> Changes:
    """Return what `latest` changes: what is newer than the table has, or all if it is empty.

    Nothing is written but the first files of an empty table: the records are in the history, the
    layer over the table. `latest` are all of this run.
    """
    known = known_latest(run, tables, latest)
    if run.tables.is_empty(tables.latest):  # read back what was written rather than persist it
        written = run.tables.write_first(tables.latest, latest, coalesce=run.broadcast_keys)
        rows = run.tables.rows_of(written)
        return _changes(fold.changes(rows, known, broadcast_keys=run.broadcast_keys))
    rows = fold.changes(latest, known, broadcast_keys=run.broadcast_keys)
    return _changes(rows.persist(StorageLevel.MEMORY_AND_DISK))


def closed_latest(
    run: CompactionRun, tables: InputTables, before: Changes | None, closing: DataFrame
) -> Changes:
    """Return the changes of a run with those rows that close their keys, whatever else it has.

    `before` are those of its other records; those of them that are closed here still count as
    retries that were applied.
    """
    known = known_latest(run, tables, closing)
    rows = fold.with_old(closing, known, broadcast_keys=run.broadcast_keys)
    if before is None:
        return _changes(rows.persist(StorageLevel.MEMORY_AND_DISK))
    both = fold.both_changes(before.rows, rows).persist(StorageLevel.MEMORY_AND_DISK)
    return replace(_changes(both), retries=before.retries)


def _changes(rows: DataFrame) -> Changes:
    opened, retries = totals(rows, _OPENED, _RETRIES)
    return Changes(rows, opened, retries)
