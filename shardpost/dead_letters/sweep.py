"""Sweep the dead letters: what is due goes to its retry topic, what is beyond help is parked.

Read: each partition of the store, to its end. Transform: fold it to the live letters, decide about
each. Write: retries, parked letters and tombstones in one Kafka transaction per batch; then the
steps of all letters into the table `dead_letters`.
"""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from shardpost import locks, logs
from shardpost.dead_letters.intake import take_in
from shardpost.dead_letters.job import SWEEP_DEAD_LETTERS
from shardpost.dead_letters.letter_details import routes_of
from shardpost.dead_letters.model.transitions import Routes
from shardpost.dead_letters.spark import table_append
from shardpost.dead_letters.sweep_partition import (
    PartitionReport,
    Sweep,
    due_by_error,
    sweep_partition,
)
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError
from shardpost.kafka import offsets
from shardpost.settings import Settings
from shardpost.spark import job, session
from shardpost.steps import step

log = logging.getLogger(__name__)

T = TypeVar("T")


def sweep_dead_letters(settings: Settings, now: datetime) -> job.Outcome:
    """Sweep once, under a lock; beside another sweep it refuses."""
    with locks.exclusive(settings, SWEEP_DEAD_LETTERS.name, SWEEP_DEAD_LETTERS.name):
        return _sweep(settings, now)


def _sweep(settings: Settings, now: datetime) -> job.Outcome:
    routes = routes_of(settings)
    step("intake")
    taken_in = take_in(settings, routes, now)
    step("sweep")
    partitions = _with_records(settings, routes)
    sweep = Sweep(settings, routes, now, _held(settings, routes, now, partitions))
    reports = _per_partition(partial(sweep_partition, sweep), partitions)
    failed = [report for report in reports if report.error]
    if failed:
        raise ShardpostError("; ".join(f"{report.error}" for report in failed))
    step("table")
    rows = table_append.catch_up(settings)
    log.info("dead_letters: read %d offsets more", rows)
    return _outcome(reports, taken_in, sweep.held)


def _with_records(settings: Settings, routes: Routes) -> list[int]:
    """Return the partitions of the store that have any record."""
    counts = {routes.store: routes.partitions[routes.store]}
    marks = offsets.watermarks(settings, counts, committed=False)[routes.store]
    return [partition for partition, (low, high) in marks.items() if low < high]


def _held(
    settings: Settings, routes: Routes, now: datetime, partitions: list[int]
) -> frozenset[str]:
    """Return the fingerprints of which too many letters are due; read before anything is sent."""
    if settings.retry_flood is None:
        return frozenset()
    look = partial(due_by_error, Sweep(settings, routes, now))
    due = sum(_per_partition(look, partitions), Counter[str]())
    found = {mark: count for mark, count in due.items() if count > settings.retry_flood}
    for mark, count in found.items():
        log.warning("held: %d letters of %s are due (SHARDPOST_RETRY_FLOOD)", count, mark)
    return frozenset(found)


def _per_partition(body: Callable[[int], T], partitions: list[int]) -> list[T]:
    """Do it for each partition, one Spark task each."""
    if not partitions:
        return []
    spark = session.start(SWEEP_DEAD_LETTERS.name)
    tasks = spark.sparkContext.parallelize(partitions, len(partitions))
    return tasks.map(partial(_logged, body)).collect()


def _logged(body: Callable[[int], T], partition: int) -> T:
    logs.configure()
    return body(partition)


def _outcome(reports: list[PartitionReport], taken_in: int, held: frozenset[str]) -> job.Outcome:
    counts = ("retried", "parked", "dropped", "waiting", "held")
    totals: dict[str, Any] = {name: sum(getattr(r, name) for r in reports) for name in counts}
    result = {**totals, "taken_in": taken_in, "held_errors": sorted(held)}
    return (NEEDS_ATTENTION if totals["held"] else DONE), result
