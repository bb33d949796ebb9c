"""One input brought up to date: its history, then its table of latest records."""

from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame

from shardpost.holders.model import tables
from shardpost.holders.spark.compaction_run import CompactionRun, InputTopic
from shardpost.holders.spark.corrections import Corrections
from shardpost.holders.spark.history import Appended, append_corrections, append_originals
from shardpost.holders.spark.latest import (
    Changes,
    changed_latest,
    latest_of_originals,
    latest_with_corrections,
)
from shardpost.holders.spark.reconciliation import close_superseded
from shardpost.holders.spark.rejected_records import (
    rejected_of,
    report_rejected,
    report_without_effect,
)
from shardpost.kafka.offset_ranges import total_size
from shardpost.steps import step


@dataclass(frozen=True)
class TopicUpdate:
    """The new records of a topic (rows of its history) and what they changed.

    `new` is None if there are none; `read` is how many are originals. `without_effect` is how many
    retries were decoded and changed nothing, `reconciled` how many keys were closed.
    """

    source: InputTopic
    new: DataFrame | None
    changes: Changes | None
    read: int = 0
    rejected: int = 0
    without_effect: int = 0
    reconciled: int = 0


def update_topic(
    run: CompactionRun, source: InputTopic, corrections: Corrections | None
) -> TopicUpdate:
    """Read what is new of a topic, and retries of its records, into its tables."""
    ranges = run.unread.of_topic(source.topic)
    if not ranges and not corrections:
        return TopicUpdate(source, None, None)
    step(f"{source.name} history")
    originals = append_originals(run, source, ranges) if ranges else None
    corrected = append_corrections(run, source, corrections) if corrections else None
    step(f"{source.name} table")
    table = source.tables.latest
    latest = latest_of_originals(run, table, originals, total_size(ranges)) if originals else None
    if corrected:
        latest = latest_with_corrections(table, latest, corrected)
    assert latest is not None  # noqa: S101 - of ranges and corrections, one is there
    changes = changed_latest(run, source.tables, latest)
    appended = [one for one in (originals, corrected) if one]
    return TopicUpdate(
        source,
        reduce(DataFrame.unionByName, (one.rows for one in appended)),
        changes,
        originals.count if originals else 0,
        sum(one.rejected for one in appended),
        _without_effect(source.topic, corrections, corrected, changes),
    )


def reconciled(run: CompactionRun, update: TopicUpdate) -> TopicUpdate:
    """Close what the topic of an update does not hold any more, if the run reconciles."""
    if run.unread.reconciliation is None:
        return update
    closed = close_superseded(run, update.source, update.changes)
    if closed is None:
        return update
    return replace(update, changes=closed.changes, reconciled=closed.count)


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
    if update.new is None or not update.rejected:
        return
    whole = rejected_of(update.new, update.source.topic)
    report_rejected(update.source.topic, update.rejected, whole)
    run.tables.append(tables.REJECTED_RECORDS, whole)
