"""One input brought up to date: its history, then its table of latest records."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shardpost.holders.model import tables
from shardpost.holders.model.record_kind import RecordKind
from shardpost.holders.spark.compaction_run import CompactionRun, InputTopic
from shardpost.holders.spark.corrections import Corrections
from shardpost.holders.spark.history import Appended, append_corrections, append_originals
from shardpost.holders.spark.latest import (
    Changes,
    latest_of_originals,
    latest_with_corrections,
    upsert_latest,
)
from shardpost.holders.spark.rejected_records import report_rejected, report_without_effect
from shardpost.kafka.offset_ranges import OffsetRange, total_size
from shardpost.steps import step


@dataclass(frozen=True)
class TopicUpdate:
    """The new records of a topic (rows of its history) and what they changed.

    `without_effect` is how many retries were decoded and changed nothing.
    """

    source: InputTopic
    new: DataFrame
    changes: Changes
    rejected: int
    without_effect: int


def update_topic(
    run: CompactionRun,
    source: InputTopic,
    ranges: Sequence[OffsetRange],
    corrections: Corrections | None,
) -> TopicUpdate | None:
    """Read a topic's ranges, and retries of its records, into its tables; None if there is none."""
    if not ranges and not corrections:
        return None
    step(f"{source.name} history")
    originals = append_originals(run, source, ranges) if ranges else None
    corrected = append_corrections(run, source, corrections) if corrections else None
    step(f"{source.name} table")
    table = source.tables.latest
    latest = latest_of_originals(run, table, originals, total_size(ranges)) if originals else None
    if corrected:
        latest = latest_with_corrections(table, latest, corrected)
    assert latest is not None  # noqa: S101 - of ranges and corrections, one is there
    changes = upsert_latest(run, table, latest)
    appended = [one for one in (originals, corrected) if one]
    return TopicUpdate(
        source,
        reduce(DataFrame.unionByName, (one.rows for one in appended)),
        changes,
        sum(one.rejected for one in appended),
        _without_effect(source.topic, corrections, corrected, changes),
    )


def _without_effect(
    topic: str, corrections: Corrections | None, corrected: Appended | None, changes: Changes
) -> int:
    """Return, and log, how many decodable retries are not the latest of their key."""
    if corrections is None or corrected is None:
        return 0
    count = corrections.count - corrected.rejected - changes.retries
    if count:
        report_without_effect(topic, count, corrected.rows, changes.rows)
    return count


def keep_rejected(run: CompactionRun, update: TopicUpdate) -> None:
    """Store the rejected records of an update whole, and log them."""
    columns = ("timestamp", "value", "headers", "reason", "snapshot")
    whole = update.new.where(F.col("kind") == RecordKind.REJECTED.value).select(
        F.coalesce("retry_topic", F.lit(update.source.topic)).alias("topic"),
        F.coalesce("retry_partition", "partition").alias("partition"),
        F.coalesce("retry_offset", "offset").alias("offset"),
        *(F.col("raw_key").alias("key"), *columns),
    )
    report_rejected(update.source.topic, update.rejected, whole)
    run.tables.append(tables.REJECTED_RECORDS, whole)
