"""Catch up with the input topics, commit one snapshot, publish the changes of the holders.

Read: exactly the offsets after the last snapshot, retries too. Transform: decode, fold, adder and
subtractor. Write: every table, then the row in `snapshots` that makes all of it visible, then the
difference to `share-holders`, and what was rejected to `dead-letters`.
"""

import logging
import uuid
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from datetime import UTC, datetime

from shardpost.adapters import (
    inputs,
    kafka,
    locks,
    rejected_letters,
    share_holders_topic,
    snapshots,
)
from shardpost.errors import DONE
from shardpost.settings import Settings
from spark_jobs import job
from spark_jobs.compaction import Compaction, Done
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
    read = [*inputs.input_topics(settings), *inputs.retry_topics(settings)]
    counts = kafka.partition_counts(settings, [*read, settings.topic("share-holders")])
    last = snapshots.newest(settings)
    if last:
        last.require_shards(counts[settings.topic("share-holders")])
    looked_at = datetime.now(UTC)
    ranges, ends = inputs.unread(settings, counts, last)
    done = Done()
    if last and not ranges and last.country == settings.country:
        latest = last.looked(looked_at)
        snapshots.look(settings, latest)
        log.info("snapshot %d holds all that there is", last.number)
    else:
        step("read")
        work = Compaction(settings, counts, last, run=str(uuid.uuid4()))
        latest = work.snapshot(ranges, ends, looked_at)
        step("commit")
        snapshots.commit(settings, latest)
        done = work.done
        log.info("snapshot %d: %s; %s", latest.number, latest.counts, done)
    step("offsets")
    kafka.commit_offsets(settings, GROUP, ends)
    step("publish")
    published = share_holders_topic.publish(settings, latest)
    step("letters")
    letters = rejected_letters.send(settings, latest)
    return {
        "snapshot": latest.as_json(),
        "published": published,
        "letters": letters,
        "changed": latest.number != (last.number if last else 0),
        **asdict(done),
    }


if __name__ == "__main__":
    job.run(ArgumentParser(description=__doc__), compact)
