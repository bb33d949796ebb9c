"""Start one run for each key under which runs are requested.

Started when a record is written to the topic `run-requests`, and every five minutes. For each key,
such as `weekly_email/2026-W47`,

1. a run that has ended, or was deleted, frees its key;
2. the **first request wins**: a command is written to `run-commands`. While its run is active, the
   same request again changes nothing; another payload is a conflict, and not run;
3. each command becomes **one run** of its DAG. What Airflow rejects (no such DAG, a paused DAG,
   wrong params) is refused, and frees the key.

`decisions` records conflicts and refusals. A run that never ends keeps its key until it is deleted,
or until `shardpost runs release KEY --why …`. An alert is sent if Kafka deleted requests before
they were read. See `docs/run-requests.md`.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import (
    Asset,
    AssetOrTimeSchedule,
    AssetWatcher,
    CronTriggerTimetable,
    task,
)
from shardpost_assets import topic_uri
from shardpost_dag_rules import DagWithDeadline, apply_rules, due_within
from shardpost_run_request_watch import RunRequestWatch

from shardpost.orchestration.connections import task_installation
from shardpost.orchestration.tasks import DEFAULTS, NO_BACKFILL, task_errors
from shardpost.settings import installations

log = logging.getLogger(__name__)


WITHIN = timedelta(minutes=30)


@task(
    execution_timeout=timedelta(minutes=15),
    multiple_outputs=False,
    doc_md="Releases the keys of ended runs, decides on all requests, starts issued runs.",
)
@task_errors()
def dispatch() -> dict[str, Any]:
    """Dispatch once; return the counts of what was done."""
    from shardpost.orchestration.own_runs import OwnRuns
    from shardpost.run_requests.dispatch import dispatch as dispatch_now

    counts = dispatch_now(task_installation(), datetime.now(UTC), OwnRuns())
    (log.error if counts.lost else log.info)(counts.in_words())
    return vars(counts)


for own in installations():
    watcher = AssetWatcher(name=own.id("run_request_watch"), trigger=RunRequestWatch(own.name))
    requests = Asset(own.id("run_requests"), topic_uri(own, "run-requests"), watchers=[watcher])
    with DagWithDeadline(
        own.id("dispatch_run_requests"),
        description="Run requests → run commands → one run for each key",
        schedule=AssetOrTimeSchedule(
            timetable=CronTriggerTimetable("*/5 * * * *", timezone="UTC"), assets=[requests]
        ),
        catchup=False,
        deadline=due_within(WITHIN),
        allowed_run_types=NO_BACKFILL,
        max_active_runs=1,
        default_args=DEFAULTS | {"retry_delay": timedelta(seconds=10)},  # a person may be waiting
        tags=own.tags("run requests"),
        doc_md=__doc__,
    ) as made:
        dispatch()
    apply_rules(own, made)
