"""Import a full list of positions: compare it with what is open, and write the difference.

By hand. The list is a CSV, JSON or Parquet file (or a folder of such) that the worker can read or
that is on an object store (`s3://aws_default@bucket/list.csv`, with the id of a connection), or a
table or query of a database: a JDBC URL, or `airflow:` and the id of a connection. It has the
columns PositionId, Client, Ticker, Amount and Exchange, and **all** open positions: a position that
it lacks is closed. So it is with clients and exchanges (`into`), but not with an increment
(`watermark`).

1. `import` compares the list with the newest snapshot. Without the param `apply` it changes
   nothing; its result (XCom) is the plan: how many are `new`, `changed`, `closed`, `equal`, and the
   `rejected` rows with their reasons. With `apply` it writes the difference to the topic, and a
   record to `decisions`; with the `up_to` of a plan, exactly what that plan showed, or nothing.
   Killed and run again, it writes what is left.
2. `report` logs the plan and the rejected rows. It fails the run if the import was refused, and
   nothing was written: too many would close (`SHARDPOST_IMPORT_MAX_CLOSED`, or the param
   `max_closed`), or the list may lack rows.

It refuses while the topic has records that no compaction has read: run `compact_positions` first,
and again afterwards, so that the tables have what was imported. See `docs/import.md`, also for the
login of a database.
"""

import logging
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Context, task
from airflow.sdk.exceptions import AirflowFailException
from shardpost_dag_rules import apply_rules
from shardpost_import_sources import ImportJob

from shardpost.commands.positions import import_command
from shardpost.errors import UsageError
from shardpost.imports.import_job import IMPORT_POSITIONS
from shardpost.imports.model.plan import notes, summary
from shardpost.imports.model.source import ImportRequest, Source
from shardpost.orchestration.tasks import (
    DEFAULTS,
    NO_BACKFILL,
    in_form,
    params_of,
    task_errors,
    text_param,
)
from shardpost.run_requests.model.requests import started_by
from shardpost.settings import installations
from shardpost.wording import share

log = logging.getLogger(__name__)

PARAMS = {
    "source": text_param(
        "Source",
        "File or folder of the worker, s3://CONNECTION@BUCKET/KEY, a JDBC URL, or"
        " airflow:CONNECTION for a database. Required.",
    ),
    **params_of(import_command, ("into", "profile", "watermark", "table", "query", "apply")),
    **params_of(import_command, ("max_closed", "import_id", "up_to")),
    "why": text_param("Why", "Recorded on the topic decisions."),
}


def import_request(context: Context, source: Source) -> ImportRequest:
    """Return the request of the job; UsageError for params that it could only refuse."""
    params = context["params"]
    max_closed = params["max_closed"] or None
    return ImportRequest(
        source,
        started_by(context["dag_run"]) or "Airflow",
        bool(params["apply"]),
        params["import_id"] or None,
        None if max_closed is None else _share(max_closed),
        params["why"] or None,
        params["up_to"] or None,
        params["into"] or "positions",
        params["watermark"] or None,
    )


def _share(text: str) -> float:
    try:
        return share(text)
    except ValueError as error:
        raise UsageError(f"max_closed: {error}, found {text}") from None


@task(retries=0, doc_md="Logs the plan and the rejected rows; fails the run if it was refused.")
@task_errors()
def report(result: dict[str, Any]) -> None:
    """Log what somebody should know; fail if the import was refused."""
    for line in (*summary(result), *notes(result)):
        log.info("%s", in_form(line))
    if result["refused"]:
        raise AirflowFailException(f"refused, and nothing was written: {result['refused']}")


for own in installations():
    with DAG(
        own.id("import_positions"),
        description="A full list of positions, from files or a database → the difference →"
        " positions",
        schedule=None,
        catchup=False,
        allowed_run_types=NO_BACKFILL,
        max_active_runs=1,
        default_args=DEFAULTS,
        params=PARAMS,
        tags=own.tags("positions", "spark"),
        doc_md=__doc__,
    ) as made:
        imported: Any = ImportJob(
            task_id="import",
            job=IMPORT_POSITIONS,
            asked=import_request,
            execution_timeout=timedelta(hours=3),
            doc_md="The Spark job `import_positions`: read, compare, write.",
        ).output
        report(imported)
    apply_rules(own, made)
