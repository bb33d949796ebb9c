"""Catch up with the input topics, commit one snapshot, publish the changes of the holders.

Read: exactly the offsets after the last snapshot, retries too. Transform: decode, fold, adder and
subtractor. Write: every table, then the row in `snapshots` that makes all of it visible, then the
difference to `share-holders`, and rejected records to `dead-letters`.

A reconciliation does the same, and closes what the inputs do not hold any more: tombstones were
lost, or a topic was recreated.
"""

import logging
from dataclasses import asdict
from datetime import UTC, datetime

from shardpost import locks
from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError, combined
from shardpost.holders import inputs, publishing, rejected_letters
from shardpost.holders.job import COMPACT_POSITIONS
from shardpost.holders.model.unread import Look, Unread
from shardpost.holders.publishing import Publication
from shardpost.holders.spark.snapshot_build import BuiltSnapshot, RunCounts, build_snapshot
from shardpost.kafka import offsets
from shardpost.settings import Settings
from shardpost.spark import job
from shardpost.steps import step

log = logging.getLogger(__name__)

GROUP = "shardpost-compaction"


def compact(settings: Settings, *, reconcile: bool = False) -> job.JobResult:
    """Run one compaction under its lock, after any that is running: `lock_wait` at most.

    NEEDS_ATTENTION if a list was too large to be published.
    """
    name = COMPACT_POSITIONS.name
    with locks.exclusive(settings, name, name, wait=settings.lock_wait):
        result = _compact(settings, reconcile)
        return (NEEDS_ATTENTION if result["too_large"] else DONE), result


def _compact(settings: Settings, reconcile: bool) -> dict[str, object]:
    read = [*inputs.input_topics(settings), *inputs.retry_topics(settings)]
    partitions = offsets.partition_counts(settings, [*read, settings.topic("share-holders")])
    last = snapshots.newest(settings)
    if last:
        last.require_shards(partitions[settings.topic("share-holders")])
    look = Look(datetime.now(UTC), last, partitions, reconcile)
    unread = inputs.unread(settings, look)
    has_new = unread.ranges or unread.reconciliation
    if last and not has_new and last.country == settings.country:
        latest, done = _nothing_new(settings, last.with_looked_at(look.at, unread.topic_ids))
    else:
        step("read")
        latest, done = build_snapshot(settings, look, unread)
        inputs.require_same(settings, unread)
        step("commit")
        snapshots.commit(settings, latest)
        log.info("snapshot %d: %s; %s", latest.number, latest.counts, done)
    step("offsets")
    _commit_offsets(settings, unread)
    published, letters = _pass_on(settings, latest)
    return {
        "snapshot": latest.as_json(),
        "published": published.records,
        "too_large": published.too_large,
        "letters": letters,
        "changed": latest.number != (last.number if last else 0),
        **asdict(done),
    }


def _commit_offsets(settings: Settings, unread: Unread) -> None:
    """Commit how far the topics were read; without that, only tools that show lag are wrong."""
    try:
        offsets.commit_offsets(settings, GROUP, unread.ends)
    except ShardpostError as error:
        log.warning("the offsets of group %s were not committed: %s", GROUP, error)


def _pass_on(settings: Settings, latest: Snapshot) -> tuple[Publication, int]:
    """Publish, and send letters, each also where the other fails; raise what failed."""
    published, letters = Publication(), 0
    failures: list[Exception] = []
    step("publish")
    try:
        published = publishing.publish(settings, latest)
    except Exception as error:
        failures.append(error)
    step("letters")
    try:
        letters = rejected_letters.send(settings, latest)
    except Exception as error:
        failures.append(error)
    if failures:
        raise combined(failures)
    return published, letters


def _nothing_new(settings: Settings, latest: Snapshot) -> BuiltSnapshot:
    snapshots.update_looked_at(settings, latest)
    log.info("snapshot %d is up to date", latest.number)
    return BuiltSnapshot(latest, RunCounts())
