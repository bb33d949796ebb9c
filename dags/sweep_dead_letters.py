"""Retry the dead letters that are due, with backoff; park those that cannot be retried.

Every five minutes (`SHARDPOST_SWEEP_SCHEDULE`), one run at a time: sends each letter of the topic
`dead-letters` that is due to `retries` (or the retry topic of its origin), and what is exhausted,
fatal or malformed to `parking-lot`, for a person. A sweep that is killed anywhere sends nothing
twice and loses nothing.

1. `sweep` appends each step of each letter to the table `dead_letters`. Its result (XCom) counts
   letters: retried, parked (by origin and error), dropped (reported again after they were retried
   or parked), left waiting, held (too large to be parked), and taken in from topics of other
   frameworks.
2. `report` alerts about parked and held letters, and foreign letters that were deleted unread. The
   run still succeeds: to repeat it would change nothing.

See `docs/dead-letters.md`.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import CronTriggerTimetable, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException
from shardpost_assets import OwnAssets
from shardpost_dag_rules import DagWithDeadline, apply_rules, due_within

from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS, for_a_person
from shardpost.orchestration.spark_job import SparkJob
from shardpost.orchestration.tasks import (
    DEFAULTS,
    NO_BACKFILL,
    alert_of_attention,
    task_errors,
)
from shardpost.settings import installations
from shardpost.values.schedules import longest_wait


@task(
    doc_md="Alerts, once, if something needs a person; skipped if all is well.",
)
@task_errors()
def report(result: dict[str, Any]) -> None:
    """Log and alert what needs a person."""
    lines = for_a_person(result)
    if not lines:
        raise AirflowSkipException("nothing needs a person")
    alert_of_attention(get_current_context(), lines)


for own in installations():
    schedule = own.one("sweep_schedule")
    with DagWithDeadline(
        own.id("sweep_dead_letters"),
        description="dead-letters → retries and parking-lot, with backoff; the table dead_letters",
        schedule=CronTriggerTimetable(schedule, timezone="UTC"),
        catchup=False,
        deadline=due_within(longest_wait(schedule)),
        allowed_run_types=NO_BACKFILL,
        max_active_runs=1,
        default_args=DEFAULTS,
        tags=own.tags("dead letters", "spark"),
        doc_md=__doc__,
    ) as made:
        swept: Any = SparkJob(
            task_id="sweep",
            job=SWEEP_DEAD_LETTERS,
            outlets=[OwnAssets(own).retries, OwnAssets(own).letters],
            execution_timeout=timedelta(hours=1),
            doc_md="The Spark job `sweep_dead_letters`: take in, sweep, append to the table.",
        ).output
        report(swept)
    apply_rules(own, made)
