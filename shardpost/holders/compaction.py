"""Catch up with the input topics, commit one snapshot, publish the changes of the holders.

Read: exactly the offsets after the last snapshot, retries too. Transform: decode, fold, adder and
subtractor. Write: every table, then the row in `snapshots` that makes all of it visible, then the
difference to `share-holders`, and rejected records to `dead-letters`.

A reconciliation does the same, and closes what the inputs do not hold any more: tombstones were
lost, or a topic was recreated.
"""

import logging

from shardpost import locks
from shardpost.delta import snapshots
from shardpost.holders import inputs, nothing_new
from shardpost.holders.job import COMPACT_POSITIONS
from shardpost.holders.kafka_is_gone import saying_that_nothing_changed
from shardpost.holders.look_report import report, with_attention
from shardpost.holders.pass_on import pass_on
from shardpost.holders.spark.snapshot_build import build_snapshot
from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult
from shardpost.steps import step

log = logging.getLogger(__name__)


def compact(settings: Settings, *, reconcile: bool = False) -> JobResult:
    """Run one compaction under its lock, after any that is running: `lock_wait` at most.

    NEEDS_ATTENTION if a list was too large to be published, if share-holders is not compacted only,
    if open transactions hide records, and if a reconciliation left keys as they are that may have
    lost records. An error says how far the run came: nothing was changed, or the snapshot is
    committed and what is left to do.
    """
    name = COMPACT_POSITIONS.name
    lock = locks.exclusive(settings, name, name, wait=settings.lock_wait)
    with lock, saying_that_nothing_changed(settings):
        return _compact(settings, reconcile)


def _compact(settings: Settings, reconcile: bool) -> JobResult:
    look, unread = inputs.look(settings, reconcile=reconcile)
    if nothing_new.is_nothing_new(settings, look, unread):
        return nothing_new.stay(settings, look, unread)
    report(look, unread)
    step("read")
    latest, done = build_snapshot(settings, look, unread)
    inputs.require_same(settings, unread)
    step("commit")
    snapshots.commit(settings, latest)
    counts = latest.counts.in_words(), done.in_words()
    log.info("snapshot %d: %s; by this run: %s", latest.number, *counts)
    return with_attention(pass_on(settings, latest, unread, done, changed=True), unread)
