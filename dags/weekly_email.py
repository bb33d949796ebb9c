"""The weekly e-mail: to each client, once, its US positions as of the week's end.

One run per ISO week, Mondays 08:00 UTC (`SHARDPOST_WEEKLY_SEND`): everybody who held US stock at
the end of the week (Monday 00:00 UTC) gets **one** e-mail with their positions.

1. `wait`: if the newest snapshot does not cover the week's end, or is too old, starts
   `compact_positions`, and waits, without a slot, for at most `SHARDPOST_WEEKLY_LATENESS_DAYS`. Its
   *Rendered Templates* say for what; after an hour it alerts. A dry run does not wait.
2. `freeze` stores this audience, once and for good, for all runs of the week.
3. `send`, one task per group of shards, mails the clients that are not mailed yet, and records each
   delivery in the ledger (topic `weekly-emails`). A failed task is retried alone; no client that
   got the mail gets another.
4. `report` decides about refusals that no shard could decide about. It fails the run once if
   deliveries are unknown, if refused clients remain open, or if too many clients failed or are not
   subscribed, and says what to do.

- **Skips its week** (`groups` says why): a *scheduled* run, if no snapshot was committed before the
  week ended, or it ended too long ago (`SHARDPOST_WEEKLY_LATENESS_DAYS`), but never a frozen week,
  which has to be finished; any run, if the week is closed, or its audience was erased.
- **Fails, and freezes nothing**: if far fewer clients than in the week before would get a mail, or
  none (**accept drop** confirms it; a dry run fails, too); or if `SHARDPOST_COUNTRY` differs from
  the newest snapshot's (**country changed**).

A manual run or a backfill is never too late; without `week`, it mails the week of its data
interval, or else the last week that ended. A **dry run** prints into the logs of `send` who would
get what. See `docs/weekly-email.md`.
"""

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import Context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from shardpost_assets import OwnAssets
from shardpost_dag_rules import DagWithDeadline, apply_rules, due_within
from shardpost_iso_weeks import IsoWeeks
from shardpost_param_formats import ISO_WEEK, SHARDS

from shardpost.commands.email import email_command
from shardpost.errors import ShardpostError, UsageError, shown
from shardpost.instants import parse_instant
from shardpost.orchestration.connections import task_installation
from shardpost.orchestration.snapshot_wait import SnapshotWait
from shardpost.orchestration.spark_job import SparkJob
from shardpost.orchestration.tasks import (
    DEFAULTS,
    MEANT,
    ON_DEMAND,
    params_of,
    task_errors,
    text_param,
)
from shardpost.settings import installations
from shardpost.spark.job import document_of
from shardpost.weekly_email.email_job import (
    SEND_TIME,
    WEEKLY_EMAIL,
    EmailRequest,
    Mode,
    parse_shards,
    shard_label,
)
from shardpost.weekly_email.limits import MailLimits, too_many, totals
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import failed_line
from shardpost.weekly_email.model.week_tables import PausedWeek
from shardpost.wording import some_of

log = logging.getLogger(__name__)

MOST_NAMED = 20  # clients that a message names
AT_ONCE = 2  # tasks that send
PARAMS = {
    "week": text_param(
        "Week",
        "An ISO week: year, -W, and a number from 01 to 52, or 53 in a year with 53 weeks; such"
        " as 2026-W47. Empty: the run's own, or the last ended week; for an early manual run,"
        " the week still running.",
        format=ISO_WEEK,
    ),
    **params_of(
        email_command,
        ("shards", "dry_run", "on_unknown", "again", "early", *MEANT),
        shards=SHARDS,
    ),
}


def freeze_request(context: Context, now: datetime | None = None) -> EmailRequest:
    """Return the request of the job that freezes; UsageError for what it could only refuse."""
    run, params = context["dag_run"], context["params"]
    week = week_of(params, run)
    require_mailable(week, now or datetime.now(UTC), early=bool(params["early"]))
    return EmailRequest(
        week,
        mode=Mode.LIST_GROUPS if params["dry_run"] else Mode.FREEZE,
        shards=params["shards"] or None,
        is_scheduled=run.run_type == "scheduled",
        **common_options(params),
    )


def require_mailable(week: IsoWeek, now: datetime, *, early: bool) -> None:
    """Raise UsageError if the week cannot be mailed now; the attempts of a task change nothing."""
    try:
        week.as_of(now, early=early)
    except ShardpostError as error:
        raise UsageError(str(error)) from None


def week_of(params: Any, run: Any) -> IsoWeek:
    """Return a run's week: the one given, or its data interval's, or the last that ended.

    For an early manual run it is the week still running.
    """
    if params["week"]:
        return IsoWeek.parse(params["week"])
    if params["early"] and run.run_type in ON_DEMAND:
        return IsoWeek.of(run.run_after)
    if run.data_interval_start is not None:
        return IsoWeek.of(run.data_interval_start)
    return IsoWeek.last_ended(run.run_after)


def common_options(params: Any) -> dict[str, Any]:
    """Return what the requests of all jobs of a run have in common.

    Not the run's time: one that is cleared, or waited long, is checked by the time it runs at.
    """
    return {
        "early": bool(params["early"]),
        # A dry run's lines go into the task's log.
        "recipients": Path("/dev/stdout") if params["dry_run"] else None,
        "on_unknown": params["on_unknown"],
        "again": params["again"],
        **{name: bool(params[name]) for name in MEANT},
    }


@task(doc_md="Assigns shards to tasks; skips the rest of the run if the week is skipped.")
@task_errors()
def groups(frozen: dict[str, Any], params: Any = None) -> list[dict[str, Any]]:
    """Return request and name of one `send` for each group of shards."""
    if frozen["skipped"]:
        raise AirflowSkipException(frozen["skipped"])
    shared = EmailRequest(
        IsoWeek.parse(frozen["week"]),
        mode=Mode.DRY_RUN if params["dry_run"] else Mode.SEND,
        # All shards of a week that has not ended are as of one instant.
        as_of=parse_instant(frozen["as_of"]) if params["early"] else None,
        is_part=True,
        **common_options(params),
    )
    return [
        {
            "request": document_of(replace(shared, shards=shards), with_now=False),
            "part": shard_label(parse_shards(shards, frozen["shards"])),
        }
        for shards in frozen["groups"]
    ]


@task(
    retries=0,
    doc_md="Decides about refused mails from all answers; fails the run, once, if deliveries are"
    " unknown or too many clients got no mail.",
)
@task_errors()
def report(frozen: dict[str, Any], sent: list[dict[str, Any]]) -> None:
    """Settle refusals, log the counts; fail if deliveries are unknown, or too many got no mail."""
    from shardpost.weekly_email.send_shard import settle_parts

    parts = sent[:]  # all at once: item by item, Airflow logs an error at the end of the list
    week, installation = IsoWeek.parse(frozen["week"]), task_installation()
    status, left_open = settle_parts(installation, week, parts, datetime.now(UTC))
    counts = ", ".join(f"{count} {state}" for state, count in totals(status["shards"]).items())
    log.info("%s: %s", week, counts if status["shards"] else "nothing was sent")
    if failed := failed_line(status):
        log.warning("%s: %s", frozen["week"], failed)
    wrong = [what_to_do(frozen["week"], unknown)] if (unknown := status["unknown"]) else []
    if paused := next((part["paused"] for part in parts if part.get("paused")), None):
        wrong.insert(0, f"{PausedWeek.from_json(week, paused).explanation}.")
    wrong += [f"{why}; run it again." for why in left_open]
    if refused := frozen.get("would_be_refused"):
        wrong.append(f"Without a dry run, it would be refused: {refused}")
    wrong += [text for text, _ in too_many(installation.values(MailLimits), status)]
    if wrong:
        raise AirflowFailException(" ".join(wrong))


def what_to_do(week: str, unknown: list[str]) -> str:
    """Return one line that says what to do about unknown deliveries."""
    named = some_of([*map(shown, unknown)], MOST_NAMED)
    return (
        f"{week}: {len(unknown)} unknown: {named}. These mails may or may not have been "
        f"delivered, so they were not sent again. `shardpost emails --week {week}` lists them; "
        "the mail server's log says which were accepted: "
        f"`shardpost emails resolve --week {week} --client … --as sent|open --why …`. "
        f"`shardpost email --week {week} --on-unknown resend` sends them again, at most once, "
        "with the same Message-ID."
    )


for own in installations():
    with DagWithDeadline(
        own.id("weekly_email"),
        description="One e-mail per client and ISO week: its US positions as of the week's end",
        schedule=IsoWeeks(own.one("weekly_send"), own.name),
        catchup=False,
        deadline=due_within(SEND_TIME),
        max_active_runs=1,
        default_args=DEFAULTS,
        params=PARAMS,
        tags=own.tags("e-mail", "spark"),
        doc_md=__doc__,
    ) as made:
        wait = SnapshotWait(
            task_id="wait",
            request=freeze_request,
            compaction=own.id("compact_positions"),
            execution_timeout=timedelta(days=own.one("weekly_lateness_days")),
            doc_md="Waits for a compaction if the newest snapshot is too old for the run.",
        )
        freeze = SparkJob(
            task_id="freeze",
            job=WEEKLY_EMAIL,
            request=freeze_request,
            inlets=[OwnAssets(own).holders],
            outlets=[OwnAssets(own).audiences],
            max_active_tis_per_dag=1,
            doc_md="Stores, once for the week, the recipients and their positions.",
        )
        wait.set_downstream(freeze)
        frozen: Any = freeze.output
        send = SparkJob.partial(
            task_id="send",
            job=WEEKLY_EMAIL,
            mails=True,
            map_index_template="{{ task.part }}",
            max_active_tis_per_dag=AT_ONCE,  # over all runs, as in a backfill
            execution_timeout=2 * SEND_TIME,  # it may wait as long for its turn at the rate
            doc_md="Mails the clients of its shards that are not mailed yet.",
        )
        sent: Any = send.expand_kwargs(groups(frozen)).output
        report(frozen, sent)
    apply_rules(own, made)
