"""One input brought up to date: its history, then its table of latest records.

Records that changed nothing are reported in the log by their coordinates. So are uncertain keys: of
them a good record may be lost, since an undecodable one came behind it. Kafka's cleaner deletes any
record that a later one of its key supersedes, as soon as both are older than min.compaction.lag.ms.
It does not look at values: a tombstone is gone long before delete.retention.ms if an undecodable
record came behind it. Nothing but a hole shows that.

A key is uncertain if all its new records are undecodable, one of them has a hole below it, and the
cleaner may have been there. It has not if a record stands below that is superseded below, too.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.delta.snapshot import Snapshot
from shardpost.errors import one_line, shown
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.lost_records import NamedKeys
from shardpost.holders.model.view_tables import REJECTED_RECORDS, RETRY_NAMES
from shardpost.holders.spark.compaction_run import CompactionRun, InputTopic, as_frame
from shardpost.holders.spark.corrections import Corrections
from shardpost.holders.spark.history import Appended, append_corrections, append_originals
from shardpost.holders.spark.latest import (
    MAX_NAMED,
    Changes,
    changed_latest,
    few_changes,
    newest_of_run,
)
from shardpost.kafka import offsets
from shardpost.kafka.records import ONE_PARTITIONER, Coordinates, OffsetRange, total_size
from shardpost.logs import step
from shardpost.spark import driver

log = logging.getLogger(__name__)


def rejected_of(history: DataFrame, topic: str) -> DataFrame:
    """Return the undecodable records among rows of a topic's history, as rows of their table."""
    columns = ("timestamp", "value", "headers", "reason", "snapshot")
    return history.where(F.col("kind") == RecordKind.REJECTED.value).select(
        F.coalesce("retry_topic", F.lit(topic)).alias("topic"),
        F.coalesce("retry_partition", "partition").alias("partition"),
        F.coalesce("retry_offset", "offset").alias("offset"),
        *(F.col("raw_key").alias("key"), *columns),
    )


@dataclass(frozen=True)
class InputUpdate:
    """The new records of a topic, in its history, and what they changed.

    `read` is how many are originals. `without_effect` is how many
    retries were decoded and changed nothing, `reconciled` how many keys were closed, `skipped` how
    many records do not meet `where` of the input's mapping. `scattered`
    are keys with records in several partitions, which added partitions do not explain.
    """

    source: InputTopic
    appended: Sequence[Appended] = ()
    changes: Changes | None = None
    read: int = 0
    rejected: int = 0
    without_effect: int = 0
    reconciled: int = 0
    skipped: int = 0
    scattered: NamedKeys = field(default_factory=NamedKeys)

    @property
    def new(self) -> DataFrame:
        """The new records as rows of the history; there are some."""
        return reduce(DataFrame.unionByName, (part.rows for part in self.appended))


def update_topic(
    run: CompactionRun, source: InputTopic, corrections: Corrections | None
) -> InputUpdate:
    """Read what is new of a topic, and retries of its records, into its tables."""
    ranges = run.unread.of_topic(source.topic)
    if not ranges and not corrections:
        return InputUpdate(source)
    step(f"{source.name} history")
    originals = append_originals(run, source, ranges) if ranges else None
    corrected = append_corrections(run, source, corrections) if corrections else None
    step(f"{source.name} table")
    table = source.tables.latest
    if run.few and run.unread.reconciliation is None and not run.tables.is_empty(table):
        changes = few_changes(run, source)
    else:
        newest = newest_of_run(run, originals, corrected, total_size(ranges))
        changes = changed_latest(run, source, newest)
    appended = [rows for rows in (originals, corrected) if rows]
    is_skipped = F.col("kind") == RecordKind.SKIPPED.value
    may_skip = appended if source.mapping and source.mapping.where else []
    return InputUpdate(
        source,
        appended,
        changes,
        originals.written.rows if originals else 0,
        sum(part.rejected for part in appended),
        _without_effect(run, source.topic, corrections, corrected, changes),
        skipped=sum(rows.rows.where(is_skipped).count() for rows in may_skip),
        scattered=_scattered(run, source, originals, changes),
    )


def _scattered(
    run: CompactionRun, source: InputTopic, originals: Appended | None, changes: Changes
) -> NamedKeys:
    """Return, and log, the keys of which this run has found records in several partitions."""
    together = originals.scattered if originals else None
    if together is None and not changes.moved:
        return NamedKeys()
    keys = as_frame(run, changes.rows).where("moved > 0").select("key")
    found = named_keys(keys if together is None else keys.unionByName(together))
    for key in found.keys:
        log.warning("%s: key %s has records in several partitions", source.topic, shown(key))
    log.warning(
        "%s: %d keys have records in several partitions, which added partitions do not explain."
        " The record read later wins; among records read by the same run, timestamps decide: %s",
        *(source.topic, found.count, ONE_PARTITIONER),
    )
    return found


def named_keys(keys: DataFrame) -> NamedKeys:
    """Return the keys of a frame that may have them several times."""
    keys = keys.distinct().persist(StorageLevel.MEMORY_AND_DISK)
    named = keys.orderBy("key").limit(MAX_NAMED).collect()
    return NamedKeys(keys.count(), [row["key"] for row in named])


def _without_effect(
    run: CompactionRun,
    topic: str,
    corrections: Corrections | None,
    corrected: Appended | None,
    changes: Changes,
) -> int:
    """Return, and log, how many decodable retries are not the latest of their key."""
    if corrections is None or corrected is None:
        return 0
    count = corrections.count - corrected.rejected - changes.retries
    if not count:
        return 0
    same = ["key", "partition", "offset", "retry_offset"]
    changed = as_frame(run, changes.rows)
    applied = changed.where(F.col("retry_offset").isNotNull()).select(*same)
    decodable = corrected.rows.where(F.col("kind") != RecordKind.REJECTED.value)
    others = decodable.join(F.broadcast(applied), same, "left_anti")
    named = others.select(*RETRY_NAMES, "partition", "offset").orderBy(*RETRY_NAMES)
    for *retry, partition, offset in named.limit(MAX_NAMED).collect():
        origin = Coordinates(topic, partition, offset)
        log.warning("%s: corrects %s without effect", Coordinates(*retry), origin)
    log.warning("%s: %d corrections without effect: a later record counts", topic, count)
    return count


def keep_rejected(run: CompactionRun, update: InputUpdate) -> None:
    """Store the rejected records of an update whole, and log up to MAX_NAMED with their reasons."""
    topic, count = update.source.topic, update.rejected
    if not count:
        return
    whole = rejected_of(update.new, topic)
    some = whole.select("topic", "partition", "offset", "reason")
    for *found, reason in some.orderBy("topic", "partition", "offset").limit(MAX_NAMED).collect():
        log.warning("%s: %s", Coordinates(*found), one_line(reason))
    unnamed = f", {count - MAX_NAMED} of them not shown here" if count > MAX_NAMED else ""
    other = ": of another form? `shardpost inputs suggest`" if count == update.read else ""
    log.warning(
        "%s: %d records rejected%s; the table rejected_records keeps them completely%s",
        *(topic, count, unnamed, other),
    )
    run.tables.append(REJECTED_RECORDS, whole)


def uncertain_keys(
    run: CompactionRun, update: InputUpdate, last: Snapshot, now: datetime
) -> NamedKeys:
    """Return the keys of an input whose good records may be lost since the last look."""
    topic = update.source.topic
    ranges, compaction = run.unread.of_topic(topic), run.unread.compactions[topic]
    has_holes = update.read < total_size(ranges)
    if not (update.rejected and has_holes and compaction.may_have_superseded(last, now)):
        return NamedKeys()
    new = update.new
    suspect = undecodable_only(new, now - compaction.lag)
    suspect = behind_holes(suspect, new, ranges).persist(StorageLevel.MEMORY_AND_DISK)
    if not suspect.count():
        return NamedKeys()
    counts, ends = {topic: run.partitions[topic]}, run.unread.ends[topic]
    marks = offsets.watermarks(run.kafka, counts, committed=True)[topic]
    all_ranges = [OffsetRange(topic, one, low, ends[one]) for one, (low, _) in marks.items()]
    visible_ranges = [range_ for range_ in all_ranges if range_.size > 0]
    driver.plan_for(run.spark, total_size(visible_ranges))
    visible = run.records_of(visible_ranges)
    return named_keys(maybe_cleaned(suspect, visible).select("key"))


def undecodable_only(new: DataFrame, at_most: datetime) -> DataFrame:
    """Return (key, partition, offset) of undecodable records with timestamps up to that time.

    `new` are rows of a history. Those of keys that have a decodable record or correction among them
    are left out: what came last of such a key is known.
    """
    is_rejected = F.col("kind") == RecordKind.REJECTED.value
    decodable = new.where(~is_rejected).select("key")
    has_key = F.col("key").isNotNull() & (F.col("key") != "")
    is_old = F.col("retry_offset").isNull() & (F.col("timestamp") <= F.lit(at_most))
    bad = new.where(is_rejected & has_key & is_old).select("key", "partition", "offset")
    return bad.join(decodable, "key", "left_anti")


def behind_holes(bad: DataFrame, new: DataFrame, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Return those of the records below which an offset of the ranges has no record.

    `new` are rows of a history: all records of the ranges are among them.
    """
    firsts = [F.lit(n) for range_ in ranges for n in (range_.partition, range_.first)]
    first = F.create_map(*firsts)[F.col("partition")]
    below = F.row_number().over(Window.partitionBy("partition").orderBy("offset")) - 1
    originals = new.where(F.col("retry_offset").isNull()).select("partition", "offset")
    with_hole = originals.withColumn("below", below).where(F.col("offset") - first > F.col("below"))
    return bad.join(with_hole.drop("below"), ["partition", "offset"], "left_semi")


def maybe_cleaned(bad: DataFrame, visible: DataFrame) -> DataFrame:
    """Return those of the records up to which the cleaner may have been.

    Where two records of one key are still visible, it has not been beyond the second of them: it
    would have deleted the first. `visible` is (key, partition, offset) of all that a topic holds.
    """
    before = F.lag("offset").over(Window.partitionBy("partition", "key").orderBy("offset"))
    keyed = visible.where(F.col("key").isNotNull()).select("partition", "offset", "key")
    second = keyed.withColumn("before", before).where(F.col("before").isNotNull())
    dirty = second.groupBy("partition").agg(F.min("offset").alias("dirty_from"))
    with_dirty = bad.join(F.broadcast(dirty), "partition", "left")
    is_dirty = F.coalesce(F.col("dirty_from") <= F.col("offset"), F.lit(False))
    return with_dirty.where(~is_dirty).drop("dirty_from")
