"""The dispatch: every partition of run requests, once, several at the same time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta

from shardpost.errors import ShardpostError, UsageError
from shardpost.locks import exclusive
from shardpost.run_requests import request_topics
from shardpost.run_requests.airflow_api import log_in
from shardpost.run_requests.airflow_runs import AirflowRuns
from shardpost.run_requests.model.dispatch_counts import DispatchCounts
from shardpost.run_requests.model.requests import RequestRules
from shardpost.run_requests.partition_dispatch import PartitionDispatch
from shardpost.settings import Settings

AT_ONCE = 4  # partitions
LOCK = "dispatch_run_requests"


def dispatch(settings: Settings, now: datetime) -> DispatchCounts:
    """Decide on all that was asked, start what was issued, free what has ended.

    Waits for a dispatch that is at work already, then looks for itself. Raises ShardpostError, with
    all else done, where a partition cannot be dispatched or Airflow does not answer.
    """
    with alone(settings), _runs(settings) as runs:
        rules = _rules(settings, request_topics.partitions(settings), now)
        tally = _all_partitions(settings, runs, rules)
        if tally.forwarded:
            tally.waiting = tally.unseen = 0  # the second time counts them again
            tally.add(_all_partitions(settings, runs, rules))
    if tally.waiting or tally.unseen:
        why = runs.down or "; ".join(runs.troubles[:3])
        raise ShardpostError(
            f"{tally.in_words()}. {tally.waiting} commands are committed and not started, and"
            f" {tally.unseen} runs were not looked at: {why}; the next dispatch makes it good"
        )
    return tally


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Hold the lock under which run commands are written on this machine."""
    what = "the dispatch of run requests"
    with exclusive(settings, LOCK, what, wait=settings.lock_wait):
        yield


@contextmanager
def _runs(settings: Settings) -> Iterator[AirflowRuns]:
    """Give Airflow's runs; also where Airflow does not answer, which they then say."""
    url, user, password = settings.airflow_url, settings.airflow_user, settings.airflow_password
    if url is None or user is None or password is None:
        raise UsageError(
            "SHARDPOST_AIRFLOW_URL needs SHARDPOST_AIRFLOW_USER and SHARDPOST_AIRFLOW_PASSWORD"
        )
    with ExitStack() as opened:
        try:
            runs = AirflowRuns(opened.enter_context(log_in(url, user, password)))
        except ShardpostError as error:
            runs = AirflowRuns(None, str(error))
        yield runs


def _rules(settings: Settings, partitions: int, now: datetime) -> RequestRules:
    dags = frozenset(name.strip() for name in settings.askable_dags.split(","))
    oldest = timedelta(days=settings.request_days)
    return RequestRules(dags - {""}, settings.request_bytes, oldest, partitions, now)


def _all_partitions(settings: Settings, runs: AirflowRuns, rules: RequestRules) -> DispatchCounts:
    """Dispatch every partition; what fails in one is raised when the others are done."""
    tally, errors = DispatchCounts(), []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [
            pool.submit(PartitionDispatch(settings, partition, runs, rules).run)
            for partition in range(rules.partitions)
        ]:
            try:
                tally.add(done.result())
            except ShardpostError as error:
                errors.append(str(error))
    if errors:
        raise ShardpostError("; ".join(dict.fromkeys(errors)))
    return tally
