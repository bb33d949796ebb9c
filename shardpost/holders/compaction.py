"""Catch up with the input topics, commit one snapshot, publish the changes of the holders.

Read: exactly the offsets after the last snapshot, retries too. Transform: decode, fold, adder and
subtractor. Write: every table, then the row in `snapshots` that makes all of it visible, then the
difference to `share-holders`, and rejected records to `dead-letters`.
"""

import logging
from dataclasses import asdict
from datetime import UTC, datetime

from shardpost import locks
from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import DONE
from shardpost.holders import inputs, publishing, rejected_letters
from shardpost.holders.job import COMPACT_POSITIONS
from shardpost.holders.spark.snapshot_build import BuiltSnapshot, RunCounts, build_snapshot
from shardpost.kafka import offsets
from shardpost.settings import Settings
from shardpost.spark import job
from shardpost.steps import step

log = logging.getLogger(__name__)

GROUP = "shardpost-compaction"


def compact(settings: Settings) -> job.JobResult:
    """Run one compaction under its lock, after any that is running: `lock_wait` at most."""
    name = COMPACT_POSITIONS.name
    with locks.exclusive(settings, name, name, wait=settings.lock_wait):
        return DONE, _compact(settings)


def _compact(settings: Settings) -> dict[str, object]:
    read = [*inputs.input_topics(settings), *inputs.retry_topics(settings)]
    partitions = offsets.partition_counts(settings, [*read, settings.topic("share-holders")])
    last = snapshots.newest(settings)
    if last:
        last.require_shards(partitions[settings.topic("share-holders")])
    looked_at = datetime.now(UTC)
    unread = inputs.unread(settings, partitions, last)
    if last and not unread.ranges and last.country == settings.country:
        latest, done = _nothing_new(settings, last.with_looked_at(looked_at))
    else:
        step("read")
        latest, done = build_snapshot(settings, partitions, last, unread, looked_at)
        step("commit")
        snapshots.commit(settings, latest)
        log.info("snapshot %d: %s; %s", latest.number, latest.counts, done)
    step("offsets")
    offsets.commit_offsets(settings, GROUP, unread.ends)
    step("publish")
    published = publishing.publish(settings, latest)
    step("letters")
    letters = rejected_letters.send(settings, latest)
    return {
        "snapshot": latest.as_json(),
        "published": published,
        "letters": letters,
        "changed": latest.number != (last.number if last else 0),
        **asdict(done),
    }


def _nothing_new(settings: Settings, latest: Snapshot) -> BuiltSnapshot:
    snapshots.update_looked_at(settings, latest)
    log.info("snapshot %d is up to date", latest.number)
    return BuiltSnapshot(latest, RunCounts())
