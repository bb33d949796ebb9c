"""A dispatch: every partition of run requests once, several at a time; and a key freed by hand."""

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta

from shardpost.decisions import Decision, Kind, decisions_topic
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.transactions import LostAnswerError
from shardpost.locks import refused_runs
from shardpost.run_requests import request_topics
from shardpost.run_requests.airflow_api import AirflowLogin, AirflowRuns, connected
from shardpost.run_requests.model.commands import Command, DispatchCounts, fold
from shardpost.run_requests.model.requests import RequestRules
from shardpost.run_requests.partition_dispatch import PartitionDispatch
from shardpost.run_requests.request_topics import CommandWriter
from shardpost.topics import guards
from shardpost.wording import counted

log = logging.getLogger(__name__)

PARALLEL_PARTITIONS = 4
LOCK = "dispatch_run_requests"
MAX_ERRORS = 3  # that an error message quotes


def dispatch(installation: Installation, now: datetime) -> DispatchCounts:
    """Decide on all requests, start the runs of issued commands, free the keys of ended runs.

    Waits for a dispatch that is running already, then does the same itself. Raises ShardpostError,
    with all else done, where a partition cannot be dispatched or Airflow does not answer.
    """
    with refused_runs.noting(installation.files, LOCK):
        counts = _dispatch(installation, now)
    refused_runs.note(installation.files, LOCK, None)
    return counts


def _dispatch(installation: Installation, now: datetime) -> DispatchCounts:
    with guards.run(installation, LOCK):
        dags = installation.settings.requestable_dags
        max_age = timedelta(installation.settings.request_days)
        rules = RequestRules(dags, max_age, request_topics.partitions(installation.kafka), now)
        with connected(installation.values(AirflowLogin)) as runs:
            counts = _dispatch_partitions(installation, runs, rules)
            if counts.forwarded:
                counts.waiting = counts.unseen = 0  # the second time counts them again
                counts.add(_dispatch_partitions(installation, runs, rules))
    if counts.waiting or counts.unseen:
        reason = runs.unreachable or "; ".join(runs.errors[:MAX_ERRORS])
        waiting = counted(counts.waiting, "command is", "commands are")
        raise ShardpostError(
            f"{counts.in_words()}. {waiting} committed and not started,"
            f" {counted(counts.unseen, 'run')} could not be checked: {reason}; the next dispatch"
            " retries them"
        )
    return counts


def _dispatch_partitions(
    installation: Installation, runs: AirflowRuns, rules: RequestRules
) -> DispatchCounts:
    """Dispatch every partition; what fails in one is raised when the others are done."""
    counts, errors = DispatchCounts(), []
    with ThreadPoolExecutor(PARALLEL_PARTITIONS) as pool:
        for done in [
            pool.submit(_dispatch_partition, installation, partition, runs, rules)
            for partition in range(rules.partitions)
        ]:
            try:
                counts.add(done.result())
            except ShardpostError as error:
                errors.append(str(error))
    if errors:
        raise ShardpostError("; ".join(dict.fromkeys(errors)))
    return counts


def _dispatch_partition(
    installation: Installation, partition: int, runs: AirflowRuns, rules: RequestRules
) -> DispatchCounts:
    """Dispatch one partition; where Kafka's client is lost, once more from its beginning."""
    try:
        return PartitionDispatch(installation, partition, runs, rules).run()
    except LostAnswerError as error:
        log.warning("%s; dispatching the partition again", error)
    return PartitionDispatch(installation, partition, runs, rules).run()


def release(
    installation: Installation,
    key: str,
    who: str,
    why: str,
    now: datetime,
    *,
    run_id: str | None = None,
) -> Command:
    """Free a key and return the command that held it; ShardpostError if none does.

    `run_id`: or if its run is not the one that was shown to who decides.
    """
    partition = partition_of(key, request_topics.partitions(installation.kafka))
    with (
        guards.run(installation, LOCK),
        closing(CommandWriter(installation, partition)) as writer,
    ):
        writer.open()
        entry = fold(request_topics.command_entries(installation.kafka, partition)).get(key)
        if entry is None or entry.command is None:
            raise ShardpostError(
                f"no requested run is active under key {key}: see `shardpost runs list`"
            )
        if run_id not in (None, entry.command.run_id):
            found = f"expected run {run_id}, found {entry.command.run_id}, which came since"
            raise ShardpostError(f"key {key}: {found}: nothing was released")
        decision = Decision(key.encode(), Kind.RELEASED, who, now, why)
        tombstone = request_topics.release_record(
            installation.kafka, partition, key, f"by {who}: {why}"
        )
        writer.commit([tombstone, decisions_topic.written(installation.kafka, decision, {})])
    return entry.command
