"""The sweep of all dead letters: what is due is retried, what cannot be retried is parked.

Take in foreign letters; sweep each partition of the store in a Spark task of its own
(sweep_partition.py); append the steps of all letters to the table `dead_letters`; report what needs
a person: letters that were parked or held, and gaps of the intake.
"""

import gc
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from shardpost import logs
from shardpost.dead_letters import letters_table
from shardpost.dead_letters.foreign_intake import naming, take_in
from shardpost.dead_letters.letter_topics import routes_of
from shardpost.dead_letters.model.retry_policy import Outcome
from shardpost.dead_letters.stored_letters import read_what_executors_have
from shardpost.dead_letters.sweep_job import (
    SWEEP_DEAD_LETTERS,
    Intake,
    ParkedGroup,
    as_json,
    for_a_person,
    parked_lines,
)
from shardpost.dead_letters.sweep_partition import (
    PartitionReport,
    Sweep,
    due_by_fingerprint,
    sweep_partition,
)
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import partitions_with_records
from shardpost.logs import step
from shardpost.spark import driver
from shardpost.spark.job_spec import JobResult
from shardpost.topics import guards

log = logging.getLogger(__name__)

# Objects that Python allocates before it looks for cycles among them: some twenty batches. Letters
# make no cycles, and looking for them would take a quarter of a sweep.
GC_THRESHOLD = 500_000

Item = TypeVar("Item")
Result = TypeVar("Result")


def sweep_dead_letters(installation: Installation, now: datetime) -> JobResult:
    """Sweep once, under a lock; LockedError beside another sweep."""
    with guards.run(installation, SWEEP_DEAD_LETTERS.name):
        routes = routes_of(installation)
        step("intake")
        intake = take_in(installation, routes, now)
        result = as_json(Counter(), Counter(), (), intake)
        with naming(lambda: result):
            _sweep_store(Sweep(installation, routes, now), intake, result)
            step("table")
            count = letters_table.catch_up(installation, routes.partitions, _in_tasks)
            log.info("dead_letters: read %d offsets more", count)
    return (NEEDS_ATTENTION if for_a_person(result) else DONE), result


def _sweep_store(sweep: Sweep, intake: Intake, result: dict[str, Any]) -> None:
    """Sweep the store and update the result, also if a partition fails."""
    step("sweep")
    store = sweep.routes.store
    partitions = partitions_with_records(
        sweep.installation.kafka, {store: sweep.routes.partitions[store]}
    )
    most = sweep.installation.settings.retry_flood
    if most is not None:  # before anything is sent
        due = sum(_in_tasks(partial(due_by_fingerprint, sweep), partitions), Counter[str]())
        too_many = {error: count for error, count in due.items() if count > most}
        for error, count in too_many.items():
            log.warning("held: %d letters of %s are due (SHARDPOST_RETRY_FLOOD)", count, error)
        sweep = replace(sweep, held=frozenset(too_many))
    reports = _in_tasks(partial(_swept, sweep), partitions)
    _warn(store, reports)
    counts = sum((report.counts for report in reports), Counter[Outcome]())
    parked = sum((report.parked for report in reports), Counter[ParkedGroup]())
    again = [str(report.partition) for report in reports if report.is_second]
    result.update(as_json(counts, parked, sweep.held, intake, again))
    for line in parked_lines(result):  # also of a sweep that fails: the next one does not know
        log.warning(line)
    errors = [report.error for report in reports if report.error]
    if errors:
        raise ShardpostError("; ".join(errors))
    read_what_executors_have(sweep.installation, partitions)


def _warn(store: str, reports: Sequence[PartitionReport]) -> None:
    """Warn of times of producers, whose clocks may be slow, and of letters in wrong partitions."""
    if any(report.counts and not report.is_append_time for report in reports):
        log.warning(
            "%s: its times are those of the producers, so a slow clock makes retries early: set"
            " message.timestamp.type=LogAppendTime on it (docs/dead-letters.md)",
            store,
        )
    if count := sum(report.misplaced for report in reports):
        log.warning(
            "%s: %d of these letters lay in another partition than that of their original keys: one"
            " that is in both is retried twice. Produce each to the partition that `make_letter`"
            " returns, or that Kafka's murmur2 gives its original key"
            " (docs/dead-letters.md)",
            store,
            count,
        )


def _swept(sweep: Sweep, partition: TopicPartition) -> PartitionReport:
    """Sweep a partition in a Spark task; the report says whether an earlier attempt was lost."""
    from pyspark import TaskContext

    context = TaskContext.get()
    report = sweep_partition(sweep, partition)
    report.is_second = context is not None and context.attemptNumber() > 0
    return report


def _in_tasks(body: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Call a function for each item, in one Spark task each; return the results in order."""
    if not items:
        return []
    spark = driver.start_session(SWEEP_DEAD_LETTERS.name)
    tasks = spark.sparkContext.parallelize(items, len(items))
    return tasks.map(partial(_in_task, body)).collect()


def _in_task(body: Callable[[Item], Result], item: Item) -> Result:
    logs.configure_logging()
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
    return body(item)
