"""The sweep of all dead letters: what is due is retried, what no retry can help is parked.

Take in foreign letters; sweep each partition of the store in a Spark task of its own
(sweep_partition.py); append the steps of all letters to the table `dead_letters`.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from shardpost import locks, logs
from shardpost.dead_letters.foreign_intake import take_in
from shardpost.dead_letters.job import SWEEP_DEAD_LETTERS
from shardpost.dead_letters.model.outcome import Outcome, reported
from shardpost.dead_letters.model.transition_records import Routes
from shardpost.dead_letters.routes import routes_of
from shardpost.dead_letters.spark import letters_table_append
from shardpost.dead_letters.sweep_partition import (
    PartitionReport,
    Sweep,
    due_by_fingerprint,
    sweep_partition,
)
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError
from shardpost.kafka import offsets
from shardpost.kafka.coordinates import TopicPartition
from shardpost.settings import Settings
from shardpost.spark import job, session
from shardpost.steps import step

log = logging.getLogger(__name__)

T = TypeVar("T")


def sweep_dead_letters(settings: Settings, now: datetime) -> job.JobResult:
    """Sweep once, under a lock; LockedError beside another sweep."""
    with locks.exclusive(settings, SWEEP_DEAD_LETTERS.name, SWEEP_DEAD_LETTERS.name):
        return _sweep(settings, now)


def _sweep(settings: Settings, now: datetime) -> job.JobResult:
    routes = routes_of(settings)
    step("intake")
    taken_in = take_in(settings, routes, now)
    step("sweep")
    partitions = _with_records(settings, routes)
    sweep = Sweep(settings, routes, now, _held(Sweep(settings, routes, now), partitions))
    reports = _per_partition(partial(sweep_partition, sweep), partitions)
    failed = [report.error for report in reports if report.error]
    if failed:
        raise ShardpostError("; ".join(failed))
    step("table")
    count = letters_table_append.catch_up(settings)
    log.info("dead_letters: read %d offsets more", count)
    return _result(reports, taken_in, sweep.held)


def _with_records(settings: Settings, routes: Routes) -> list[TopicPartition]:
    """Return the partitions of the store that have any record."""
    counts = {routes.store: routes.partitions[routes.store]}
    watermarks = offsets.watermarks(settings, counts, committed=False)[routes.store]
    return [
        TopicPartition(routes.store, partition)
        for partition, (low, high) in watermarks.items()
        if low < high
    ]


def _held(sweep: Sweep, partitions: Sequence[TopicPartition]) -> frozenset[str]:
    """Return the fingerprints of which too many letters are due; read before anything is sent."""
    most = sweep.settings.retry_flood
    if most is None:
        return frozenset()
    due = sum(_per_partition(partial(due_by_fingerprint, sweep), partitions), Counter[str]())
    found = {error: count for error, count in due.items() if count > most}
    for error, count in found.items():
        log.warning("held: %d letters of %s are due (SHARDPOST_RETRY_FLOOD)", count, error)
    return frozenset(found)


def _per_partition(
    body: Callable[[TopicPartition], T], partitions: Sequence[TopicPartition]
) -> list[T]:
    """Call it for each partition, in one Spark task each."""
    if not partitions:
        return []
    spark = session.start(SWEEP_DEAD_LETTERS.name)
    tasks = spark.sparkContext.parallelize(partitions, len(partitions))
    return tasks.map(partial(_logged, body)).collect()


def _logged(body: Callable[[TopicPartition], T], partition: TopicPartition) -> T:
    logs.configure()
    return body(partition)


def _result(
    reports: Sequence[PartitionReport], taken_in: int, held: frozenset[str]
) -> job.JobResult:
    """Return the exit code, and the form of `letters sweep --json`."""
    counts = reported(sum((report.counts for report in reports), Counter[Outcome]()))
    result: dict[str, Any] = {**counts, "taken_in": taken_in, "held_errors": sorted(held)}
    return (NEEDS_ATTENTION if counts["held"] else DONE), result
