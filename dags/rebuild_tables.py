"""Compute the tables anew beside those in use, compare, and swap them if a person agrees.

By hand only: for another rule of who holds, after a change of decoding, or to see that code and
tables agree.
Compactions, e-mails and readers keep using the current tables meanwhile.

The run builds, compares, and asks: `approval` waits for a person under **Required Actions**, in no
slot, for a week at most, and then asks again. With **max_changed**, such as `1%`, nobody is asked
about a difference up to that share. The result (XCom) of `diff` has counts and samples. `decisions`
records who answered, and why.

The tables before a swap are kept until **action** *drop*. Until then **action** *rollback* puts
them in use again, with all later records, and no other rebuild begins.

While this run waits, no other run of this DAG starts. See `docs/rebuild.md`.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from airflow.sdk import DAG, Context, task
from airflow.sdk.exceptions import AirflowFailException
from shardpost_assets import OwnAssets
from shardpost_dag_rules import apply_rules
from shardpost_param_formats import SHARE, TABLES

from shardpost.commands.rebuild import start_command
from shardpost.decisions import SHARDPOST
from shardpost.orchestration.connections import task_installation
from shardpost.orchestration.spark_job import SparkJob
from shardpost.orchestration.tasks import (
    ANSWER,
    DEFAULTS,
    FORM,
    NO_BACKFILL,
    Approval,
    params_of,
    task_errors,
    text_param,
)
from shardpost.rebuilds.model.rebuild import Source
from shardpost.rebuilds.rebuild_job import REBUILD_TABLES, Action, RebuildRequest, tables_of
from shardpost.run_requests.model.requests import started_by
from shardpost.settings import installations
from shardpost.wording import parse_share

log = logging.getLogger(__name__)

ANY = "none_failed_min_one_success"  # of several ways to a task, one was taken
PARAMS = {
    "action": text_param(
        "Action",
        "What to do. The fields below, except Why, are for a rebuild.",
        enum=[None, "rollback", "drop"],
        values_display={
            "null": "rebuild, compare, and swap",
            "rollback": "rollback: put the tables from before the last swap back in use",
            "drop": "drop: drop the tables that are not in use",
        },
    ),
    **params_of(start_command, ("country", "holds", "source", "tables"), tables=TABLES),
    "max_changed": text_param(
        "Swap automatically up to",
        "The share of positions, holders, contacts and exchanges that may differ for a swap"
        " without approval, such as 1%. Empty: a person is asked.",
        format=SHARE,
    ),
    "why": text_param("Why", "Recorded on the topic decisions."),
}


@task.branch(doc_md="Continues with the param `action`.")
@task_errors()
def choose(params: Any = None, dag_run: Any = None, ti: Any = None) -> str:
    """Return the next task; keep the number of the rebuild that is rolled back or dropped."""
    if params["action"] is None:
        return "build"
    from shardpost.rebuilds import registry

    ti.xcom_push(key="rebuild", value=registry.require_current(task_installation().tables).number)
    return {"rollback": "rollback", "drop": "give_up"}[params["action"]]


def build_request(context: Context) -> RebuildRequest:
    """Return the request of the job that begins a rebuild, or continues it."""
    params = context["params"]
    return RebuildRequest(
        Action.START,
        _user(context),
        source=Source(params["source"] or Source.HISTORY),
        country=params["country"].strip() if params["country"] else None,
        tables=tables_of(params["tables"] or None),
        holds=params["holds"] or None,
    )


@task(
    multiple_outputs=False,
    doc_md="Compares old and new at the same offsets; logs counts and samples.",
)
@task_errors()
def diff(built: dict[str, Any]) -> dict[str, Any]:
    """Return the counts, some samples, and what a person is asked."""
    from shardpost.rebuilds.model.difference import question, samples
    from shardpost.rebuilds.registry import compare_open

    installation, now = task_installation(), datetime.now(UTC)
    found = compare_open(installation.tables, installation.kafka, now, built["rebuild"])
    some = samples(found)
    for line in [*found.count_lines(), *some]:
        log.info(line)
    counts = {name: vars(one) for name, one in found.counts.items()}
    asked = {"share": found.share, "samples": some, "question": question(built["rebuild"], found)}
    return {"rebuild": built["rebuild"], "snapshot": found.old["snapshot"]} | counts | asked


@task.branch(
    doc_md="Accepts a difference up to the share `max_changed`; asks about larger differences."
)
@task_errors()
def check(found: dict[str, Any], params: Any = None) -> str:
    """Return the next task."""
    most = params["max_changed"]
    return "swap" if most and found["share"] <= parse_share(most) else "approval"


def swap_request(context: Context) -> RebuildRequest:
    """Return the order of the swap, by the person who agreed, or of a small difference."""
    params, task = context["params"], context["ti"]
    found = task.xcom_pull(task_ids="diff")
    answer = task.xcom_pull(task_ids="approval", key=ANSWER)
    return RebuildRequest(
        Action.SWAP,
        answer["by"] if answer else _user(context),
        (answer and answer["why"]) or params["why"] or "",
        max_changed=None if answer else parse_share(params["max_changed"]),
        number=found["rebuild"],
        compared=found.get("snapshot"),  # a run of before has none
    )


def rollback_request(context: Context) -> RebuildRequest:
    """Return the order of the rollback."""
    number = context["ti"].xcom_pull(task_ids="choose", key="rebuild")
    why = context["params"]["why"] or ""
    return RebuildRequest(Action.ROLLBACK, _user(context), why, number=number)


@task(doc_md="Drops the new tables after the answer Drop; fails if they are in use by then.")
@task_errors()
def drop(ti: Any = None) -> dict[str, Any]:
    """Drop the rebuild that was compared, by the person who answered."""
    answer = ti.xcom_pull(task_ids="approval", key=ANSWER)
    number = ti.xcom_pull(task_ids="diff")["rebuild"]
    return _dropped(number, answer["by"], answer["why"], even_in_use=False)


@task(doc_md="Drops the tables that are not in use; there is no rollback afterwards.")
@task_errors()
def give_up(ti: Any = None, params: Any = None, dag_run: Any = None) -> dict[str, Any]:
    """Drop the rebuild that there was at first."""
    number = ti.xcom_pull(task_ids="choose", key="rebuild")
    return _dropped(number, _user_of(dag_run), params["why"], even_in_use=True)


def _dropped(number: int, by: str, why: str | None, *, even_in_use: bool) -> dict[str, Any]:
    from shardpost.rebuilds import drop as module

    rebuild, removed = module.drop(
        task_installation(), by, why or "", number, even_in_use=even_in_use
    )
    return {"rebuild": rebuild.number, "state": "dropped", "removed": removed}


@task(retries=0, trigger_rule=ANY, doc_md="Reports the result; fails if a swap was refused.")
@task_errors()
def report(ti: Any = None) -> None:
    """Log the end; fail if more differed by the time of the swap than may pass by itself."""
    for name in ("swap", "drop", "rollback", "give_up"):
        if (found := ti.xcom_pull(task_ids=name)) is None:
            continue
        if "refused" in found:
            raise AirflowFailException(
                f"{found['refused']}. Start this DAG with the same params: it continues rebuild"
                f" {found['rebuild']} and asks again."
            )
        log.info("rebuild %s: %s", found["rebuild"], found["state"])


def _user(context: Context) -> str:
    """Return who started the run."""
    return _user_of(context["dag_run"])


def _user_of(dag_run: Any) -> str:
    return started_by(dag_run) or SHARDPOST


for own in installations():
    with DAG(
        own.id("rebuild_tables"),
        description="Rebuild the tables beside those in use, compare them, and swap them on"
        " approval",
        schedule=None,
        catchup=False,
        allowed_run_types=NO_BACKFILL,
        max_active_runs=1,
        default_args=DEFAULTS,
        params=PARAMS,
        tags=own.tags("tables", "approval", "spark"),
        doc_md=__doc__,
    ) as made:
        chosen = choose()
        built = SparkJob(
            task_id="build",
            job=REBUILD_TABLES,
            request=build_request,
            execution_timeout=timedelta(hours=12),
            doc_md="Computes the new tables, or continues a killed run.",
        )
        found: Any = diff(cast("Any", built.output))
        approval = Approval(
            task_id="approval",
            subject="Swap the tables of rebuild {{ ti.xcom_pull(task_ids='diff')['rebuild'] }}?",
            body="{{ ti.xcom_pull(task_ids='diff')['question'] }}",
            options=["Swap", "Drop"],
            options_mapping={"Swap": "swap", "Drop": "drop"},
            params=FORM,
            response_timeout=timedelta(days=7),
            doc_md="Waits for a person: Swap or Drop.",
        )
        swap = SparkJob(
            task_id="swap",
            job=REBUILD_TABLES,
            request=swap_request,
            outlets=OwnAssets(own).of_compaction,
            trigger_rule=ANY,
            doc_md="Adds later records, puts the new tables in use, publishes the holders whose"
            " list changed.",
        )
        rollback = SparkJob(
            task_id="rollback",
            job=REBUILD_TABLES,
            request=rollback_request,
            outlets=OwnAssets(own).of_compaction,
            doc_md="Puts the tables from before the last swap back in use, with later records"
            " added.",
        )
        dropped, given_up = drop(), give_up()
        chosen >> [built, rollback, given_up]
        check(found) >> [approval, swap]
        approval >> [swap, dropped]
        [swap, dropped, rollback, given_up] >> report()
    apply_rules(own, made)
