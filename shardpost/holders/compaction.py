"""Catch up with the input topics, commit one snapshot, publish the changes of the holders.

Read: exactly the offsets after the last snapshot, retries too. Transform: decode, fold, adder and
subtractor. Write: every table, then the row in `snapshots` that makes all of it visible, then the
difference to `share-holders`, and what was rejected to `dead-letters`.
"""

import logging
import uuid
from dataclasses import asdict
from datetime import UTC, datetime

from shardpost import locks
from shardpost.delta import snapshots
from shardpost.errors import DONE
from shardpost.holders import inputs, publishing, rejected_letters
from shardpost.holders.job import COMPACT_POSITIONS
from shardpost.holders.spark.snapshot_build import RunCounts, SnapshotBuild
from shardpost.kafka import offsets
from shardpost.settings import Settings
from shardpost.spark import job
from shardpost.steps import step

log = logging.getLogger(__name__)

GROUP = "shardpost-compaction"


def compact(settings: Settings) -> job.Outcome:
    """Run one compaction under its lock; beside another one, wait for it first."""
    name = COMPACT_POSITIONS.name
    with locks.exclusive(settings, name, name, wait=settings.lock_wait):
        return DONE, _compact(settings)


def _compact(settings: Settings) -> dict[str, object]:
    read = [*inputs.input_topics(settings), *inputs.retry_topics(settings)]
    counts = offsets.partition_counts(settings, [*read, settings.topic("share-holders")])
    last = snapshots.newest(settings)
    if last:
        last.require_shards(counts[settings.topic("share-holders")])
    looked_at = datetime.now(UTC)
    ranges, ends = inputs.unread(settings, counts, last)
    done = RunCounts()
    if last and not ranges and last.country == settings.country:
        latest = last.with_looked_at(looked_at)
        snapshots.update_looked_at(settings, latest)
        log.info("snapshot %d holds all that there is", last.number)
    else:
        step("read")
        work = SnapshotBuild(settings, counts, last, run=str(uuid.uuid4()))
        latest = work.snapshot(ranges, ends, looked_at)
        step("commit")
        snapshots.commit(settings, latest)
        done = work.done
        log.info("snapshot %d: %s; %s", latest.number, latest.counts, done)
    step("offsets")
    offsets.commit_offsets(settings, GROUP, ends)
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
