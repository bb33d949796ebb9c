"""One task for each way in which a task does not succeed."""

from datetime import timedelta

from airflow.sdk import Context, dag, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from shardpost.errors import ShardpostError, UsageError
from shardpost.orchestration.spark_job import SparkJob
from shardpost.orchestration.tasks import DEFAULTS, task_errors
from shardpost.spark.job import JobSpec

SOON = {"retries": 1, "retry_delay": timedelta(seconds=0)}


def refused_request(_context: Context) -> object:
    """Refuse the params of the run."""
    raise UsageError("week 2026-W99: there is no such week in 2026")


ERRORS = {
    "could_not": ShardpostError("no broker at 127.0.0.1:1"),
    "needs_a_person": AirflowFailException("2 deliveries are unknown"),
    "left_out": AirflowSkipException("the week ended long ago"),
    "has_a_bug": KeyError("shards"),
}


@task
@task_errors()
def raising(name: str) -> None:
    """Raise the error of that name."""
    raise ERRORS[name]


@task(execution_timeout=timedelta(seconds=0.2))
@task_errors()
def takes_too_long() -> None:
    """Wait until it is stopped."""
    while True:
        pass


@dag(schedule=None, default_args=DEFAULTS | SOON)
def failures() -> None:
    """Run them all, none after another."""
    SparkJob(task_id="refused", job=JobSpec("stand_in"), request=refused_request)
    SparkJob(task_id="bad_job", job=JobSpec("stand_in"), request="bad_job")
    for name in ERRORS:
        raising.override(task_id=name)(name)
    takes_too_long()


failures()
