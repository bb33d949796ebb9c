"""One task for each way in which a task does not succeed."""

from datetime import timedelta

from airflow.sdk import Context, dag, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from shardpost.errors import ShardpostError, UsageError
from shardpost.orchestration.spark_job import SparkJob
from shardpost.orchestration.tasks import DEFAULTS, task_errors
from shardpost.spark.job_spec import JobSpec

SOON = {"retries": 1, "retry_delay": timedelta(seconds=0)}


def refused_request(_context: Context) -> object:
    """Refuse the params of the run."""
    raise UsageError("week 2026-W99: there is no such week in 2026")


@task
@task_errors()
def could_not() -> None:
    """Fail as a command does."""
    raise ShardpostError("no broker at 127.0.0.1:1")


@task
@task_errors()
def needs_a_person() -> None:
    """Fail once and for all."""
    raise AirflowFailException("2 deliveries are unknown")


@task
@task_errors()
def left_out() -> None:
    """Skip."""
    raise AirflowSkipException("the week ended long ago")


@task
@task_errors()
def has_a_bug() -> None:
    """Fail as nobody has foreseen."""
    raise KeyError("shards")


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
    could_not()
    needs_a_person()
    left_out()
    has_a_bug()
    takes_too_long()


failures()
