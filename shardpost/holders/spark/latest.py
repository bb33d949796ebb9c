"""The latest record of each key: of the new records of an input, and in its table."""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.delta.table import Table
from shardpost.holders.model.record_kind import RecordKind
from shardpost.holders.spark import fold
from shardpost.holders.spark.compaction_run import CompactionRun
from shardpost.holders.spark.history import Appended
from shardpost.holders.spark.totals import totals_and_files
from shardpost.spark.delta_files import columns_of

# Up to so many new records of a topic, the coordinates of the latest ones are broadcast: some 30
# bytes each, in the driver's memory too.
MAX_BROADCAST_COORDINATES = 20_000_000
_RETRIES = "cast(retry_offset is not null as int)"
_OPENED = "cast(is_open as int) - coalesce(cast(old_is_open as int), 0)"


@dataclass(frozen=True)
class Changes:
    """The changes of a table of latest records: the rows of `fold.changes`, persisted.

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
    rows = fold.as_rows(decodable, columns_of(table))
    return fold.latest_with_retries(rows if latest is None else latest.unionByName(rows))


def upsert_latest(run: CompactionRun, table: Table, latest: DataFrame) -> Changes:
    """Write what is newer than the table has; return what changed."""
    known = run.tables.read_with_files(table)
    if run.tables.is_empty(table):  # read back what was written rather than persist it
        written = run.tables.append(table, latest, coalesce=run.broadcast_keys)
        rows = fold.changes(run.tables.rows_of(written), known, broadcast_keys=run.broadcast_keys)
        (opened, retries), _ = totals_and_files(rows, _OPENED, _RETRIES)
        return Changes(rows, opened, retries)
    rows = fold.changes(latest, known, broadcast_keys=run.broadcast_keys)
    return _upsert(run, table, rows)


def close_latest(run: CompactionRun, table: Table, closing: DataFrame) -> Changes:
    """Write rows that close their keys, whatever the table has of them; return what changed."""
    known = run.tables.read_with_files(table)
    return _upsert(run, table, fold.with_old(closing, known, broadcast_keys=run.broadcast_keys))


def both_changes(first: Changes | None, then: Changes) -> Changes:
    """Return the changes by two steps as those of one."""
    if first is None:
        return then
    rows = fold.both_changes(first.rows, then.rows)
    return Changes(rows, first.opened + then.opened, first.retries)


def _upsert(run: CompactionRun, table: Table, changed: DataFrame) -> Changes:
    rows = changed.persist(StorageLevel.MEMORY_AND_DISK)
    (opened, retries), files = totals_and_files(rows, _OPENED, _RETRIES)
    new = rows.select(*columns_of(table))
    run.tables.upsert(table, new, files, broadcast_keys=run.broadcast_keys)
    return Changes(rows, opened, retries)
