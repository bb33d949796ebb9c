"""The latest record of each key of an input: of its new records, and what they change."""

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.delta.table import Table
from shardpost.holders.model.record_kind import RecordKind
from shardpost.holders.model.record_order import RETRIES_READ_TOGETHER
from shardpost.holders.model.tables import InputTables
from shardpost.holders.spark import fold
from shardpost.holders.spark.compaction_run import CompactionRun
from shardpost.holders.spark.history import Appended
from shardpost.holders.spark.known_rows import known_latest
from shardpost.holders.spark.totals import totals
from shardpost.spark.delta_files import columns_of

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
