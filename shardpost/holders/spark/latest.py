"""The latest record of each key of an input, what it changes, and closing what the input lost.

A reconciliation closes what was superseded, and nobody read by what. Of a topic that is only
compacted, the last record of each key stays, but for old tombstones. So if the latest record of a
key that was read, decodable or not, is not in the topic any more, then the key was deleted since,
or has a record that is yet to be read. All that the topic has up to the ends of the run is in the
history by now: so only what came after the ends is left to be looked at.

The key is closed in the place of that record, above all corrections of it, and below whatever comes
later (model/record_order.py). An undecodable record that is still there keeps what its key had. A
topic that was recreated has none of the records that were read before.
"""

import logging
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.delta.table import Table
from shardpost.errors import shown
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import RETRIES_READ_TOGETHER, lowest_of
from shardpost.holders.model.unread import ranges_to_read
from shardpost.holders.model.view_tables import InputTables
from shardpost.holders.spark import fold, increment
from shardpost.holders.spark.compaction_run import (
    CompactionRun,
    InputTopic,
    as_frame,
    known_latest,
    totals,
)
from shardpost.holders.spark.decoding import decoded
from shardpost.holders.spark.history import Appended
from shardpost.kafka import offsets, topic_metadata
from shardpost.kafka.coordinates import Coordinates, OffsetRange
from shardpost.logs import step
from shardpost.spark.delta_files import read_files

# Up to so many new records of a topic, the coordinates of the latest ones are broadcast: some 30
# bytes each, in the driver's memory too.
MAX_BROADCAST_COORDINATES = 20_000_000
_RETRIES = "cast(retry_offset is not null as int)"
# Keys whose latest record came to another partition than Kafka now puts them into.
MOVED = "old_partition <> partition AND seq >= {base} AND seq < {current}"
_OPENED = "cast(is_open as int) - coalesce(cast(old_is_open as int), 0)"


@dataclass(frozen=True)
class Changes:
    """The changes of a table of latest records, which stay as they are.

    `rows` are those of `fold.changes`; of a few records, those of `increment.changed_keys`.
    `opened` is how many more of the table's rows are open than before; `retries` is how many of the
    changes are by retries; `moved` how many keys left the partition that Kafka puts them into, or
    came from one other to another (`MOVED`).
    """

    rows: DataFrame | pa.Table
    opened: int
    retries: int
    moved: int = 0


def latest_of_originals(
    run: CompactionRun, table: Table, originals: Appended, offsets: int
) -> DataFrame:
    """Return the latest of so many new originals per key, as rows of the table."""
    broadcast_coordinates = (
        originals.in_current_partition and not run.few and offsets <= MAX_BROADCAST_COORDINATES
    )
    latest = (
        fold.latest_in_current_partition(originals.rows)
        if broadcast_coordinates
        else fold.latest_per_key(originals.rows)
    )
    return fold.as_rows(latest, table.names)


def latest_with_corrections(
    table: Table, latest: DataFrame | None, corrections: Appended
) -> DataFrame:
    """Return the latest per key of the originals' latest, if any, and of decodable corrections."""
    decodable = corrections.rows.where(F.col("kind") != RecordKind.REJECTED.value)
    columns = table.names
    rows = fold.as_rows(decodable, [*columns, *(set(RETRIES_READ_TOGETHER) - {*columns})])
    if latest is not None:
        rows = rows.unionByName(latest, allowMissingColumns=True)
    return fold.latest_with_retries(rows).select(*columns)


def changed_latest(run: CompactionRun, source: InputTopic, latest: DataFrame) -> Changes:
    """Return what `latest` changes: what is newer than the table has, or all if it is empty.

    Nothing is written but the first files of an empty table: the records are in the history, the
    layer over the table. `latest` are all of this run.
    """
    table, moved = source.tables.latest, moved_keys(run, source)
    known = known_latest(run, table, latest)
    if run.tables.is_empty(table):  # read back what was written rather than persist it
        written = run.tables.write_first(table, latest, coalesce=run.few)
        return _changes(fold.changes(run.tables.rows_of(written), known), moved)
    rows = fold.changes(latest, known)
    return _changes(rows.persist(StorageLevel.MEMORY_AND_DISK), moved)


def few_changes(run: CompactionRun, source: InputTopic) -> Changes:
    """Return what the records of this run change, all of which are in the history, without Spark.

    They are few, and the table of latest records is not empty.
    """
    rows = increment.changed_keys(run, source.tables)
    numbering = run.numbering(source)
    moved = pc.and_kleene(
        pc.not_equal(rows["old_partition"], rows["partition"]),
        pc.and_(
            pc.greater_equal(rows["seq"], numbering.base),
            pc.less(rows["seq"], numbering.of_current),
        ),
    )
    retries = increment.count(pc.is_valid(rows["retry_offset"]))
    return Changes(rows, increment.opened(rows), retries, increment.count(moved))


def moved_keys(run: CompactionRun, source: InputTopic) -> str:
    """Return the condition, of changes of this run, that is true of `Changes.moved`."""
    numbering = run.numbering(source)
    return MOVED.format(base=numbering.base, current=numbering.of_current)


def closed_latest(
    run: CompactionRun, tables: InputTables, before: Changes | None, closing: DataFrame
) -> Changes:
    """Return the changes of a run with those rows that close their keys, whatever else it has.

    `before` are those of its other records; those of them that are closed here still count as
    retries that were applied.
    """
    rows = fold.with_old(closing, known_latest(run, tables.latest, closing))
    if before is None:
        return _changes(rows.persist(StorageLevel.MEMORY_AND_DISK))
    # What the table has (`old_…`) is in both as it was before the run.
    both = as_frame(run, before.rows).join(rows, "key", "left_anti").unionByName(rows)
    closed = _changes(both.persist(StorageLevel.MEMORY_AND_DISK))
    return replace(closed, retries=before.retries, moved=before.moved)


def _changes(rows: DataFrame, moved: str = "false") -> Changes:
    return Changes(rows, *totals(rows, _OPENED, _RETRIES, f"cast({moved} as int)"))


log = logging.getLogger(__name__)

# So many are named one by one; the table rejected_records has all.
MAX_NAMED = 1000


def report_reconciled(topic: str, count: int, closing: DataFrame) -> None:
    """Log up to MAX_NAMED records that are not in the topic any more, and the number of all.

    `closing` are the rows of a history that close their keys.
    """
    some = closing.select("partition", "offset", "key").orderBy("partition", "offset")
    for partition, offset, key in some.limit(MAX_NAMED).collect():
        at = Coordinates(topic, partition, offset)
        log.warning("%s: no longer in the topic: key %s is closed", at, shown(key))
    log.warning("%s: %d keys closed: their records are no longer in the topic", topic, count)


_RECORD = ("key", "partition", "offset", "timestamp", "seq")


def close_superseded(
    run: CompactionRun, source: InputTopic, changes: Changes | None
) -> tuple[Changes | None, int]:
    """Close the keys of an input whose latest record is gone; return how many these are.

    `changes` are those of the run's other records; those of all its records are returned.
    """
    step(f"{source.name} reconciliation")
    lowest = lowest_of(run.generation(source))
    latest, history = source.tables.latest, source.tables.history
    highest = highest_read(run.tables.read(latest), run.tables.read(history))
    gone = without(highest, _visible(run, source), lowest).persist(StorageLevel.MEMORY_AND_DISK)
    if gone.count() and (newer := _after(run, source)):  # asked for when all else was read
        gone = gone.join(_keys(run, source, newer), "key", "left_anti")
    step(f"{source.name} closing")
    written = run.tables.append(history, _closing(run, source, gone), coalesce=True)
    if not written.rows:
        return changes, 0
    closing = run.tables.rows_of(written)
    report_reconciled(source.topic, written.rows, closing)
    closed = fold.as_rows(closing, latest.names)
    return closed_latest(run, source.tables, changes, closed), written.rows


def highest_read(latest: DataFrame, history: DataFrame) -> DataFrame:
    """Return the latest record that was read of each key that is open, or may be opened.

    Columns: _RECORD. `latest` and `history` are the tables of an input. A key may be opened by a
    correction of an undecodable record above what is known of it, or of the one that a correction
    is in the place of.
    """
    can_open = F.col("is_open") | F.col("retry_offset").isNotNull()
    known = latest.select(*_RECORD, can_open.alias("can_open"), F.lit(True).alias("is_known"))
    is_original = F.col("retry_offset").isNull() & (F.col("key") != "")
    undecodable = history.where(is_original & (F.col("kind") == RecordKind.REJECTED.value))
    rejected = undecodable.select(
        *_RECORD, F.lit(True).alias("can_open"), F.lit(False).alias("is_known")
    )
    both = known.unionByName(rejected)
    highest = F.max_by(F.struct(*both.columns), F.struct("seq", "is_known")).alias("highest")
    rows = both.groupBy("key").agg(highest).select("highest.*")
    return rows.where("can_open").select(*_RECORD)


def without(highest: DataFrame, visible: DataFrame, lowest: int) -> DataFrame:
    """Return the rows of `highest` that are not visible: (key, partition, offset).

    `lowest` is the lowest seq of a record that can be.
    """
    is_same = highest["seq"] >= F.lit(lowest).cast("bigint")
    for name in ("key", "partition", "offset"):
        is_same &= highest[name] == visible[name]
    return highest.join(visible, is_same, "left_anti")


def _visible(run: CompactionRun, source: InputTopic) -> DataFrame:
    ranges = run.unread.visible_of_topic(source.topic)
    if not ranges:
        none = read_files(run.spark, source.tables.history, ())
        return none.select("key", "partition", "offset")
    records = run.records_of(ranges)
    return records.select(F.col("key").cast("string").alias("key"), "partition", "offset")


def _after(run: CompactionRun, source: InputTopic) -> list[OffsetRange]:
    """Return what came to the topic after the ends of the run, in new partitions too."""
    counts = topic_metadata.partition_counts(run.installation.kafka, [source.topic])
    marks = offsets.watermarks(run.installation.kafka, counts, committed=True)
    return ranges_to_read(run.unread.ends, marks)


def _keys(run: CompactionRun, source: InputTopic, ranges: list[OffsetRange]) -> DataFrame:
    """Return the keys of decodable records: an undecodable one says nothing of its key."""
    records = decoded(run.records_of(ranges), source.tables.fields)
    return records.where(F.col("kind") != RecordKind.REJECTED.value).select("key")


def _closing(run: CompactionRun, source: InputTopic, gone: DataFrame) -> DataFrame:
    """Return the rows of the history that close those keys."""
    reconciliation = run.unread.reconciliation
    assert reconciliation is not None  # noqa: S101 - else nothing is closed
    closes_at = F.lit(reconciliation.closes_at[source.topic])
    rows = gone.withColumns(
        {
            "timestamp": F.greatest("timestamp", closes_at),
            "kind": F.lit(RecordKind.RECONCILED.value),
            "snapshot": F.lit(run.number).cast("bigint"),
        }
    )
    none = read_files(run.spark, source.tables.history, ())
    return none.unionByName(rows, allowMissingColumns=True)
