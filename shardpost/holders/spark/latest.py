"""The latest record of each key of an input, what it changes, and closing what the input lost.

A reconciliation closes what was superseded, and nobody read by what. Of a topic that is only
compacted, the last record of each key stays, but for old tombstones. So if the latest record of a
key that was read, decodable or not, is not in the topic any more, then the key was deleted since,
or has a record that is yet to be read. All that the topic has up to the ends of the run is in the
history by now: so only what came after the ends is left to be looked at.

The key is closed in the place of that record, above all corrections of it, and below whatever comes
later (model/record_order.py). An undecodable record that is still there keeps what its key had.
"""

import logging
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.delta.query import OpenedTables
from shardpost.delta.table import Table, Version, text_literal
from shardpost.errors import shown
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import COUNTS, compared, lowest_of, newest_of_keys
from shardpost.holders.model.topic_state import ranges_to_read
from shardpost.holders.spark.compaction_run import (
    CompactionRun,
    FewRows,
    InputTopic,
    as_frame,
    known_rows,
    totals,
)
from shardpost.holders.spark.history import Appended, decode
from shardpost.kafka import offsets, topic_metadata
from shardpost.kafka.records import Coordinates
from shardpost.logs import step
from shardpost.spark import run_size
from shardpost.spark.delta_files import read_files

# Below the partition, in one number with it.
OFFSET_BITS = 48


@dataclass(frozen=True)
class Changes:
    """The changes of a table of latest records, which stay as they are: `record_order.compared`.

    In memory of a few records. How many more of the table's rows are open than before, how many of
    the changes are by retries, and how many keys `moved`, as record_order.COUNTS says.
    """

    rows: DataFrame | FewRows
    opened: int
    retries: int
    moved: int = 0


def newest_of_run(
    run: CompactionRun, originals: Appended | None, corrected: Appended | None, offsets: int
) -> DataFrame:
    """Return the latest record of each key among new records, with `is_open`."""
    if originals is None:
        assert corrected is not None  # noqa: S101 - of originals and corrections, one is there
        return run.spark.sql(newest_of_keys(), records=corrected.rows)
    is_plain = originals.in_current_partition and not run.few
    if is_plain and offsets <= run_size.THRESHOLDS.broadcast_coordinates:
        latest = latest_in_current_partition(originals.rows)
    else:
        latest = highest_of_keys(originals.rows)
    if corrected is None:
        return latest
    both = latest.drop("is_open").unionByName(corrected.rows)
    return run.spark.sql(newest_of_keys(), records=both)


def _decodable(events: DataFrame) -> DataFrame:
    is_open = F.col("kind") == RecordKind.UPSERT.value
    decodable = F.col("kind") != RecordKind.REJECTED.value
    return events.where(decodable).withColumn("is_open", is_open)


def highest_of_keys(events: DataFrame) -> DataFrame:
    """Return the decodable records with the highest seq of each key, with `is_open`.

    Of originals alone that is one each. Of millions of records it takes half to two thirds of the
    time of `newest_of_keys`, which sorts all of them.
    """
    decodable = _decodable(events)
    highest = decodable.groupBy("key").agg(F.max("seq").alias("seq"))
    return decodable.join(highest, ["key", "seq"], "left_semi")


def latest_in_current_partition(events: DataFrame) -> DataFrame:
    """Return the same of events that are all in the current partition of their key.

    Partition and offset are one number then that stands for the key too. The numbers of the latest
    events are few enough to be broadcast, so that only those events are ever shuffled.
    """
    decodable = _decodable(events)
    newest = decodable.groupBy("key", "partition").agg(F.max("offset").alias("offset"))
    latest = F.broadcast(newest.select(_coordinates().alias("coordinates")))
    located = decodable.withColumn("coordinates", _coordinates())
    return located.join(latest, "coordinates", "left_semi").drop("coordinates")


def _coordinates() -> Column:
    """Return partition and offset as one number (BIGINT)."""
    return F.shiftleft(F.col("partition").cast("bigint"), OFFSET_BITS).bitwiseOR(F.col("offset"))


def changed_latest(run: CompactionRun, source: InputTopic, newest: DataFrame) -> Changes:
    """Return what the newest records change: those that are newer than what the table has.

    Nothing is written but the first files of an empty table: the records are in the history, the
    layer over the table.
    """
    table = source.tables.latest
    is_first = run.tables.is_empty(table)
    if is_first:  # read back what was written rather than persist it
        rows = newest.select(*table.names)
        newest = run.tables.rows_of(run.tables.write_first(table, rows, coalesce=run.few))
    changed = _compared(run, source, newest).where("is_newer")
    return _counted(changed if is_first else changed.persist(StorageLevel.MEMORY_AND_DISK))


def _compared(run: CompactionRun, source: InputTopic, newest: DataFrame) -> DataFrame:
    table = source.tables.latest
    sql = compared(table, run.numbering(source))
    return run.spark.sql(sql, newest=newest, known=known_rows(run, table, newest, "key"))


def few_changes(run: CompactionRun, source: InputTopic) -> Changes:
    """Return what the records of this run change, all of which are in the history, without Spark.

    They are few, and the table of latest records is not empty. To look for ten thousand keys in ten
    million rows takes DataFusion half a second, and Spark, which plans each query anew, some times
    that.
    """
    assert run.last is not None  # noqa: S101 - else nothing is known, and Spark writes it
    history, latest = source.tables.history, source.tables.latest
    is_new = f"r.snapshot = {run.number}"
    rejected = text_literal(RecordKind.REJECTED)
    keys = f"SELECT DISTINCT r.key FROM {history.name} r WHERE {is_new} AND r.kind <> {rejected}"  # noqa: S608 - ours
    versions: dict[Table, Version] = {
        run.tables.located(history): run.tables.versions[history.name],
        run.last.located(latest): replace(run.last.layered(latest), keys=keys),
    }
    newest = newest_of_keys(is_new).format(records=history.name)
    sql = compared(latest, run.numbering(source)).format(newest=f"({newest})", known=latest.name)
    opened = OpenedTables(run.tables.where, versions)
    changed = FewRows.compared(opened, latest, sql, "is_newer")
    return Changes(changed, *map(changed.sum, COUNTS))


def closed_latest(
    run: CompactionRun, source: InputTopic, before: Changes | None, closing: DataFrame
) -> Changes:
    """Return the changes of a run with those rows of a history that close their keys.

    Whatever else it has of these: `before` are the changes by its other records; those of them that
    are closed here still count as retries that were applied.
    """
    rows = _compared(run, source, closing.withColumn("is_open", F.lit(False)))
    if before is None:
        return _counted(rows.persist(StorageLevel.MEMORY_AND_DISK))
    # What the table has (`old_…`) is in both as it was before the run.
    both = as_frame(run, before.rows).join(rows, "key", "left_anti").unionByName(rows)
    closed = _counted(both.persist(StorageLevel.MEMORY_AND_DISK))
    return replace(closed, retries=before.retries, moved=before.moved)


def _counted(rows: DataFrame) -> Changes:
    return Changes(rows, *totals(rows, *COUNTS))


log = logging.getLogger(__name__)

# So many are named one by one; the table rejected_records has all.
MAX_NAMED = 1000


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
    ranges = run.unread.visible_of_topic(source.topic)
    records = run.records_of(ranges) if ranges else read_files(run.spark, history, ())
    key = [] if source.mapping else [F.col("key").cast("string").alias("key")]
    visible = records.select(*key, "partition", "offset")
    gone = without(highest, visible, lowest).persist(StorageLevel.MEMORY_AND_DISK)
    if gone.count():
        # What came after the ends of the run, in new partitions too: asked for when all else was
        # read. An undecodable record says nothing of its key.
        counts = topic_metadata.partition_counts(run.kafka, [source.topic])
        marks = offsets.watermarks(run.kafka, counts, committed=True)
        if newer := ranges_to_read(run.unread.ends, marks):
            records = decode(source, run.records_of(newer))
            keys = records.where(F.col("kind") != RecordKind.REJECTED.value).select("key")
            gone = gone.join(keys, "key", "left_anti")
    step(f"{source.name} closing")
    written = run.tables.append(history, _closing(run, source, gone), coalesce=True)
    if not written.rows:
        return changes, 0
    closing, topic = run.tables.rows_of(written), source.topic
    some = closing.select("partition", "offset", "key").orderBy("partition", "offset")
    for partition, offset, key in some.limit(MAX_NAMED).collect():
        at = Coordinates(topic, partition, offset)
        log.warning("%s: no longer in the topic: key %s is closed", at, shown(key))
    text = "%s: %d keys closed: their records are no longer in the topic"
    log.warning(text, topic, written.rows)
    return closed_latest(run, source, changes, closing), written.rows


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

    `lowest` is the lowest seq of a record that can be; of mapped records `visible` has no key.
    """
    is_same = highest["seq"] >= F.lit(lowest).cast("bigint")
    for name in visible.columns:
        is_same &= highest[name] == visible[name]
    return highest.join(visible, is_same, "left_anti")


def _closing(run: CompactionRun, source: InputTopic, gone: DataFrame) -> DataFrame:
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
