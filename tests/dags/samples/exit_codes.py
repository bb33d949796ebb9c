"""One task for each exit code of a job."""

from datetime import timedelta

from airflow.sdk import dag

from shardpost.orchestration import DEFAULTS, SparkJob
from shardpost.spark.job_spec import JobSpec

SOON = {"retries": 1, "retry_delay": timedelta(seconds=0)}


@dag(schedule=None, default_args=DEFAULTS | SOON)
def exit_codes() -> None:
    """Run them all, none after another."""
    for name in ("done", "could_not", "bad_usage", "needs_attention", "needs_a_person_first"):
        SparkJob(task_id=name, job=JobSpec("stand_in"), arguments=[name])


exit_codes()
