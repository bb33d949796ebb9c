"""Catch up with the input topics, commit one snapshot, publish the changes of the holders.

Read: exactly the offsets after the last snapshot. Transform: decode, fold, adder and subtractor.
Write: every table, then the row in `snapshots` that makes all of it visible, then the difference to
`share-holders`.
"""

import logging
import uuid
from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime

from shardpost.adapters import kafka, locks, share_holders_topic, snapshots
from shardpost.domain.offsets import ends as ends_of
from shardpost.domain.offsets import ranges_to_read
from shardpost.domain.snapshot import Snapshot
from shardpost.errors import DONE
from shardpost.settings import Settings
from spark_jobs import job
from spark_jobs.compaction import INPUTS, Compaction
from spark_jobs.steps import step

log = logging.getLogger(__name__)

GROUP = "shardpost-compaction"


def compact(args: Namespace, settings: Settings) -> job.Outcome:
    """Run one compaction under its lock; beside another one, wait for it first."""
    del args
    lock = settings.home / "locks" / "compact_positions"
    with locks.exclusive(lock, "compact_positions", wait=settings.lock_wait):
        return DONE, _compact(settings)


def _compact(settings: Settings) -> dict[str, object]:
    inputs = [settings.topic(name) for name in INPUTS]
    counts = kafka.partition_counts(settings, [*inputs, settings.topic("share-holders")])
    last = snapshots.newest(settings)
    if last:
        last.require_shards(counts[settings.topic("share-holders")])
    looked_at = datetime.now(UTC)
    marks = kafka.watermarks(settings, {name: counts[name] for name in inputs}, committed=True)
    ranges = ranges_to_read(last.end_offsets if last else {}, marks)
    if last and not ranges and last.country == settings.country:
        latest, rejected = last.looked(looked_at), 0
        snapshots.look(settings, latest)
        log.info("snapshot %d holds all that there is", last.number)
    else:
        step("read")
        work = Compaction(settings, counts, last, run=str(uuid.uuid4()))
        latest = work.snapshot(ranges, ends_of(marks), looked_at)
        step("commit")
        snapshots.commit(settings, latest)
        rejected = work.rejected
        log.info("snapshot %d: %s", latest.number, latest.counts)
    step("offsets")
    kafka.commit_offsets(settings, GROUP, latest.end_offsets)
    step("publish")
    published = share_holders_topic.publish(settings, latest)
    return _result(
        latest, published, rejected, changed=latest.number != (last.number if last else 0)
    )


def _result(latest: Snapshot, published: int, rejected: int, *, changed: bool) -> dict[str, object]:
    return {
        "snapshot": latest.as_json(),
        "published": published,
        "rejected": rejected,
        "changed": changed,
    }


if __name__ == "__main__":
    job.run(ArgumentParser(description=__doc__), compact)
