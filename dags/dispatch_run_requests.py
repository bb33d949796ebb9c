"""Requests for runs become runs: many may ask, one runs.

Started when a record comes to the topic `run-requests`, and every five minutes for what was missed.
For each key, such as `weekly_email/2026-W47`,

1. a run that has ended, or was deleted, frees its key;
2. the **first request wins**: a command is written to `run-commands`, in one Kafka transaction with
   the place up to which requests were read. The same request again changes nothing while its run
   is on its way; another payload is a conflict, kept on `decisions` and not run;
3. each command becomes **one run** of its DAG, with an id made from the request, so that starting
   it twice is refused by Airflow itself. What Airflow does not take (no such DAG, a paused one,
   wrong params) is refused on `decisions`, and the key is free again.

To ask: `shardpost runs request KEY --dag DAG --conf JSON --wait`. To see: `shardpost runs list`. A
run that never ends keeps its key until it does, is deleted, or somebody says `shardpost runs
release KEY --why …`. The same dispatch by hand: `shardpost runs dispatch`.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import (
    Asset,
    AssetOrTimeSchedule,
    AssetWatcher,
    CronTriggerTimetable,
    dag,
    task,
)
from run_request_watch import RunRequestWatch

from shardpost.orchestration import DEFAULTS
from shardpost.settings import load

log = logging.getLogger(__name__)

REQUESTS = Asset(
    "run_requests", watchers=[AssetWatcher(name="run_request_watch", trigger=RunRequestWatch())]
)


@task(
    execution_timeout=timedelta(minutes=15),
    multiple_outputs=False,
    doc_md="Frees what has ended, decides on what was asked, starts what was issued.",
)
def dispatch() -> dict[str, Any]:
    """Dispatch once; return what was done, in numbers."""
    from shardpost.run_requests.dispatch import dispatch as dispatch_now

    tally = dispatch_now(load(), datetime.now(UTC))
    (log.error if tally.lost else log.info)(tally.in_words())
    return vars(tally)


@dag(
    description="Run requests → run commands → one run for each key",
    schedule=AssetOrTimeSchedule(
        timetable=CronTriggerTimetable("*/5 * * * *", timezone="UTC"), assets=[REQUESTS]
    ),
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULTS | {"retry_delay": timedelta(seconds=10)},  # somebody waits
    tags=["run requests"],
    doc_md=__doc__,
)
def dispatch_run_requests() -> None:
    """Dispatch once."""
    dispatch()


dispatch_run_requests()
