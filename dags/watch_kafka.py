"""Check Kafka, the tables, dead letters, e-mails and runs, and alert people about what needs them.

Every 15 minutes (`SHARDPOST_WATCH_SCHEDULE`):

1. **everything is measured** once: the audit of Kafka, how far readers are behind and when they
   lose data, the newest snapshot, letters, e-mails, runs that never end, the size of the tables;
2. the values are **kept** in the table `measurements` for 90 days;
3. **alerts** go to the channels of `SHARDPOST_ALERTS` and `alerts.log`: when a condition begins or
   becomes worse, once a day while it lasts, and when it is over. `docs/runbook.md` has each.

A run with findings still succeeds. What could not be measured is an alert too, and nothing counts
as over because of it. See `docs/watching.md`.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, task
from shardpost_dag_rules import Heartbeat, apply_rules

from shardpost.orchestration.connections import task_installation
from shardpost.orchestration.tasks import DEFAULTS, NO_BACKFILL, task_errors
from shardpost.settings import installations

log = logging.getLogger(__name__)


@task(
    execution_timeout=timedelta(minutes=10),
    multiple_outputs=False,
    doc_md="Measures everything once; its log lists what needs a person, and the alerted channels.",
)
@task_errors()
def watch() -> dict[str, Any]:
    """Measure once; return how many values were measured and alerts sent."""
    from shardpost.watch.watch import watch_once

    watched = watch_once(task_installation(), datetime.now(UTC))
    for condition in watched.observations.conditions:
        log.warning(condition.without_clients().line())  # who may see this log may see no clients
    notified = watched.notified
    for alert in notified.alerts:
        state = "reported" if notified.is_reported else "not reported yet"
        log.info("%s: %s", state, alert.title())
    for delivery in notified.deliveries:
        log.info("alert channel %s", delivery)
    return {"values": len(watched.observations.measures), "alerts": len(notified.alerts)}


for own in installations():
    with DAG(
        own.id("watch_kafka"),
        description="Measure everything, store it, and alert people",
        schedule=CronTriggerTimetable(own.one("watch_schedule"), timezone="UTC"),
        catchup=False,
        allowed_run_types=NO_BACKFILL,
        max_active_runs=1,
        default_args=DEFAULTS,
        tags=own.tags("kafka"),
        doc_md=__doc__,
    ) as made:
        watched = watch()
        if own.one("heartbeat_url"):
            watched >> Heartbeat(
                task_id="heartbeat",
                retries=0,  # the next run is not to wait for it
                doc_md="Requests `SHARDPOST_HEARTBEAT_URL`, by way of the triggerer.",
            )
    apply_rules(own, made)
