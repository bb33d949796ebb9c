"""A compaction that finds nothing new: no new snapshot, and no Spark."""

import logging

from shardpost import locks
from shardpost.delta import snapshots
from shardpost.holders import inputs
from shardpost.holders.kafka_is_gone import saying_that_nothing_changed
from shardpost.holders.look_report import report, with_attention
from shardpost.holders.model.run_counts import RunCounts
from shardpost.holders.model.unread import Look, Unread
from shardpost.holders.pass_on import pass_on
from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult

log = logging.getLogger(__name__)


def result_if_nothing_new(settings: Settings, lock: str) -> JobResult | None:
    """Do, and return, all that a compaction does that has nothing to read; None if it has.

    Under the compaction's lock, after any that is running: `lock_wait` at most.
    """
    locked = locks.exclusive(settings, lock, lock, wait=settings.lock_wait)
    with locked, saying_that_nothing_changed(settings):
        last = snapshots.newest(settings)
        if last is None or inputs.unread_originals(settings, last):
            return None  # the job itself looks at all: twice would be once too often
        look, unread = inputs.look(settings)
        return stay(settings, look, unread) if is_nothing_new(settings, look, unread) else None


def is_nothing_new(settings: Settings, look: Look, unread: Unread) -> bool:
    """Tell whether the last snapshot is what this look would make."""
    if look.last is None or unread.ranges or unread.reconciliation:
        return False
    return look.last.country == look.last.country_now(settings.country)


def stay(settings: Settings, look: Look, unread: Unread) -> JobResult:
    """Note when the inputs were found to hold no more, and pass on what is left to pass on."""
    assert look.last is not None  # noqa: S101 - by is_nothing_new
    report(look, unread)
    looked_at, incomplete = look.times(unread)
    latest = look.last.with_looked_at(looked_at, unread.topic_ids, incomplete)
    latest = latest.without_topics(unread.gone)
    snapshots.update_looked_at(settings, latest)
    log.info("snapshot %d has all that can be read", latest.number)
    result = pass_on(settings, latest, unread, RunCounts(), changed=False)
    return with_attention(result, unread)
