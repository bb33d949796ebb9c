"""Catch up with the input topics, commit one snapshot, publish the changes of the holders.

Read: exactly the offsets after the last snapshot, retries too. Transform: decode, fold, adder and
subtractor. Write: every table, then the row in `snapshots` that makes all of it visible, then the
difference to `share-holders`, and rejected records to `dead-letters`.

A reconciliation does the same, and closes what the inputs do not hold any more: tombstones were
lost, or a topic was recreated.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from shardpost.kafka.clients import KafkaUnreachableError, require_listening
from shardpost.settings import Settings
from shardpost.spark import job
from shardpost.steps import step

log = logging.getLogger(__name__)

GROUP = "shardpost-compaction"


def compact(settings: Settings, *, reconcile: bool = False) -> job.JobResult:
    """Run one compaction under its lock, after any that is running: `lock_wait` at most.

    NEEDS_ATTENTION if a list was too large to be published. An error says how far the run came:
    nothing was changed, or the snapshot is committed and what is left to do.
    """
    name = COMPACT_POSITIONS.name
    lock = locks.exclusive(settings, name, name, wait=settings.lock_wait)
    with lock, _saying_that_nothing_changed(settings):
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
    failures: dict[str, Exception] = {}
    step("publish")
    try:
        published = publishing.publish(settings, latest)
    except Exception as error:
        failures[f"publishing to {settings.topic('share-holders')}"] = error
    step("letters")
    try:
        letters = rejected_letters.send(settings, latest)
    except Exception as error:
        failures[f"the letters of rejected records to {settings.topic('dead-letters')}"] = error
    if failures:
        raise _left_to_do(latest, failures)
    return published, letters


def _left_to_do(latest: Snapshot, failures: Mapping[str, Exception]) -> ShardpostError:
    """Return what is committed, what is not done, why, and what to do."""
    for left, error in failures.items():
        if not isinstance(error, ShardpostError):
            log.error("%s", left, exc_info=error)
    unlike = [*{str(error): error for error in failures.values()}.values()]
    return ShardpostError(
        f"snapshot {latest.number} is committed, the tables are complete; left to do:"
        f" {' and '.join(failures)}. {combined(unlike)}. Run `shardpost compact`"
        " again: it does the rest"
    )


def _nothing_new(settings: Settings, latest: Snapshot) -> BuiltSnapshot:
    snapshots.update_looked_at(settings, latest)
    log.info("snapshot %d is up to date", latest.number)
    return BuiltSnapshot(latest, RunCounts())


@contextmanager
def _saying_that_nothing_changed(settings: Settings) -> Iterator[None]:
    """Say that of an error of a Kafka that is gone: after the commit it is another error.

    Spark's own errors are of a timeout; then it is asked whether Kafka is there.
    """
    try:
        try:
            yield
        except Exception as error:
            if type(error).__module__.startswith(("pyspark", "py4j")):
                require_listening(settings)
            raise
    except KafkaUnreachableError as error:
        raise KafkaUnreachableError(f"nothing was changed: {error}; then run it again") from None
