"""One task for each exit code of a job."""

from datetime import timedelta

from airflow.sdk import dag

from shardpost.errors import NEEDS_ATTENTION
from shardpost.installation import Installation
from shardpost.orchestration.spark_job import SparkJob
from shardpost.orchestration.tasks import DEFAULTS
from shardpost.spark.job import JobResult, JobSpec

SOON = {"retries": 1, "retry_delay": timedelta(seconds=0)}


def in_the_task(_installation: Installation, request: str) -> JobResult:
    """Answer as a job that needs no Spark."""
    return NEEDS_ATTENTION, {"request": request}


@dag(schedule=None, default_args=DEFAULTS | SOON)
def exit_codes() -> None:
    """Run them all, none after another."""
    for name in ("done", "could_not", "bad_usage", "needs_attention", "needs_a_person_first"):
        SparkJob(task_id=name, job=JobSpec("stand_in"), request=name)
    needs_no_spark = JobSpec("stand_in", without_spark=in_the_task)
    SparkJob(task_id="needs_no_spark", job=needs_no_spark, request="--week")


exit_codes()
