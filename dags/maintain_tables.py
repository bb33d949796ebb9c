"""Remove expired data from the tables, so that their size does not grow with their age.

Once a week (`SHARDPOST_MAINTAIN_SCHEDULE`), and by hand. `docs/tables.md`, "Retention", says what
is kept longer. Removed are

1. **audiences** older than `SHARDPOST_AUDIENCE_DAYS`: names, addresses, holdings; and from the
   ledger **weeks** older than `SHARDPOST_LEDGER_DAYS`, behind a record that closes them for good;
2. **dead letters** that were resolved `SHARDPOST_LETTER_DAYS` ago, from their table;
3. **superseded records** of positions and clients, after `SHARDPOST_HISTORY_DAYS`, if that is set;
4. **snapshots**: thinned with age, and gone after `SHARDPOST_SNAPSHOT_DAYS`;
5. **files** and **entries of the tables' logs** that no kept snapshot needs, also of interrupted
   runs.

Compactions, sweeps, the weekly e-mail and readers continue meanwhile. After an interrupted run, the
next one removes the rest. What could not be done, such as a week that is being mailed, becomes an
alert.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, get_current_context, task
from shardpost_dag_rules import apply_rules

from shardpost.commands.tables import maintain_command
from shardpost.orchestration.connections import task_installation
from shardpost.orchestration.tasks import (
    DEFAULTS,
    NO_BACKFILL,
    alert_of_attention,
    params_of,
    task_errors,
)
from shardpost.settings import installations

log = logging.getLogger(__name__)


@task(
    execution_timeout=timedelta(hours=6),
    multiple_outputs=False,
    doc_md="Removes expired data and files that no kept snapshot needs; its log lists them.",
)
@task_errors()
def maintain(**context: Any) -> dict[str, Any]:
    """Maintain the tables once; return how much was removed."""
    from shardpost.maintenance.maintain import maintain_all

    installation, dry_run = task_installation(), bool(context["params"]["dry_run"])
    found = maintain_all(installation, datetime.now(UTC), dry_run=dry_run)
    for line in found.lines(installation.tables.snapshot_days):
        log.info(line)
    if found.errors and not dry_run:
        alert_of_attention(get_current_context(), found.errors)
    return found.tables.counts()


for own in installations():
    with DAG(
        own.id("maintain_tables"),
        description="Remove expired snapshots and unneeded files",
        schedule=CronTriggerTimetable(own.one("maintain_schedule"), timezone="UTC"),
        catchup=False,
        allowed_run_types=NO_BACKFILL,
        max_active_runs=1,
        default_args=DEFAULTS,
        params=params_of(maintain_command, ["dry_run"]),
        tags=own.tags("tables"),
        doc_md=__doc__,
    ) as made:
        maintain()
    apply_rules(own, made)
