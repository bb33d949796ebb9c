"""A run of the weekly e-mail: freeze the holders at the week's end, then mail each client once.

A request has one of four modes (skip the week, freeze only, dry run, send), each with its exit code
and JSON document.
"""

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from shardpost.delta import snapshots
from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION, ShardpostError, one_line
from shardpost.holders.plausibility import CollapseError
from shardpost.holders.spark.held_positions import holding_clients
from shardpost.installation import Installation
from shardpost.locks.locks import exclusive
from shardpost.spark.job import JobResult
from shardpost.values.schedules import WeeklyTime
from shardpost.weekly_email import own_templates
from shardpost.weekly_email.delivery_status import EarlyAudience, WeekStatus
from shardpost.weekly_email.email_job import SEND_TIME, EmailRequest, Mode, shard_label
from shardpost.weekly_email.frozen_weeks import RECIPIENTS, WITH_ADDRESS, FrozenWeeks
from shardpost.weekly_email.limits import MailLimits, too_many
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import ShardStatus, status_document
from shardpost.weekly_email.prepared_week import (
    PreparedWeek,
    prepare_week,
    preview_week,
    require_no_collapse,
    require_recent,
)
from shardpost.weekly_email.send_plan import Unsubscribed
from shardpost.weekly_email.send_shard import SendOptions, settle_refusals
from shardpost.weekly_email.spark.audience_freeze import freeze
from shardpost.weekly_email.spark.dry_run import dry_run
from shardpost.weekly_email.spark.send import send_shards, spark_errors_of
from shardpost.weekly_email.week_state import WeekState

log = logging.getLogger(__name__)


def run(request: EmailRequest, installation: Installation) -> JobResult:
    """Run in the request's mode; return the exit code and the JSON result."""
    state = WeekState(installation, request.week)
    if reason := why_skip(installation, request, state):
        log.info("skipped: %s", reason)
        return DONE, request.skipped(reason)
    with spark_errors_of(request.week):
        week = prepare(installation, request, state)
        looks_only = not (request.is_real or request.is_part)
        why = why_refused(request, week) if looks_only else None
        refused = {"would_be_refused": why} if why else {}
        if request.mode in (Mode.FREEZE, Mode.LIST_GROUPS):
            done = week.as_frozen(installation.settings.shards_per_task) | refused
            if request.is_real and week.frozen:
                done["is_new"] = week.frozen.frozen_at == request.now
            return DONE, done
        resend = request.resend_policy(installation.settings.on_unknown)
        options = SendOptions(week.context, resend, request.now, time.time())
        if request.mode is Mode.DRY_RUN:
            log.info("%s: listing what a run would do to each client", request.week)
            listed = dry_run(installation, week, options, request.recipients)
            if why:
                sys.stderr.write(f"shardpost: a run would be refused: {one_line(why)}\n")
            return NEEDS_ATTENTION if why else DONE, listed | refused
        return send(installation, week, options, request)


def why_skip(installation: Installation, request: EmailRequest, state: WeekState) -> str | None:
    """Return why a run skips its week, or None if it mails it.

    A scheduled run skips a week that is too old, unless its audience is frozen: clients may still
    be open. The runs of a DAG, which freeze first, skip a week that is closed or whose audience was
    erased, so that a backfill continues; a run asked to send refuses it.
    """
    is_first = request.mode in (Mode.FREEZE, Mode.LIST_GROUPS)
    skips_gone = is_first or request.is_scheduled
    if skips_gone and (closed := state.closed(request.now)):
        return closed.explanation
    if state.frozen:
        return state.frozen.why_no_audience if skips_gone else None
    if not request.is_scheduled:
        return None
    commits = snapshots.committed_times(installation.tables).values()
    first = min(commits, default=None)
    settings = installation.settings
    if settings.weekly_first and request.week < IsoWeek.parse(settings.weekly_first):
        return f"week {request.week} is before SHARDPOST_WEEKLY_FIRST={settings.weekly_first}"
    later = WeeklyTime.parse(settings.weekly_send).later(request.week.end)
    return request.week.why_skip(request.now, first, settings.weekly_lateness_days, later)


def why_refused(request: EmailRequest, week: PreparedWeek) -> str | None:
    """Return why freezing this week's audience would be refused now, or None.

    UsageError for a week that ended before the first snapshot, if nobody held then.
    """
    if week.frozen or request.early or request.accept_drop:
        return None
    counts, tables = dict.fromkeys((RECIPIENTS, WITH_ADDRESS), 0), week.state.installation.tables
    for batch in holding_clients(tables, week.snapshot, week.as_of):
        counts[RECIPIENTS] += len(batch)
        counts[WITH_ADDRESS] += len(batch) - batch.column("email").null_count
    try:
        require_no_collapse(week.state, counts, week.snapshot.counts)
    except CollapseError as error:
        return str(error)
    return None


def prepare(installation: Installation, request: EmailRequest, state: WeekState) -> PreparedWeek:
    """Return the week with its audience, which this run freezes if requested."""
    if not request.is_real:
        return preview_week(installation, request, state)
    commits = snapshots.committed_times(installation.tables).values()
    if commits and min(commits) >= request.week.end:  # perhaps mistyped: before it counts as begun
        why_refused(request, preview_week(installation, request, state))
    week = prepare_week(installation, request, state)
    if request.early or week.frozen:
        return week
    log.info("%s: freezing the audience, as of %s", week.iso_week, week.as_of.isoformat())
    return freeze(installation, request, week)


def send(
    installation: Installation, week: PreparedWeek, options: SendOptions, request: EmailRequest
) -> JobResult:
    """Send; return the exit code and the counts of each shard. LockedError beside another run.

    A part of a run also returns the answers to its shards, for `settle_parts`.
    """
    unsubscribed = Unsubscribed(installation.tables, week.snapshot.number)
    options = replace(options, has_unsubscribed=unsubscribed)
    patience = SEND_TIME.total_seconds() if request.is_part else installation.files.lock_wait
    with at_rate(installation, patience), week.state.locked(week.shards):
        # The turn may have come hours later, with nothing new about who has unsubscribed.
        newest, most = snapshots.current(installation.tables), installation.settings
        require_recent(newest, options.clock(), most.mail_snapshot_age)
        # The locks keep an audience as it is, but it may have been erased before.
        if frozen := FrozenWeeks(installation.tables).find(week.iso_week):
            frozen.require_audience()
        if week.frozen is None:  # its audience and contacts come from the snapshot
            snapshots.require_in_force(installation.tables, week.snapshot)
        own_templates.keep_look(installation.tables, week.context, week.shards, options.clock())
        log.info("%s: mailing %s", week.iso_week, shard_label(week.shards))
        reports = send_shards(installation, week, options)
        if not request.is_part:
            reports = settle_refusals(installation, week.iso_week, reports)
        week.state.mark_end(options.clock())
        errors = [f"shard {report.shard}: {report.error}" for report in reports if report.error]
        shards = _counted(week, errors)
    document = status_document(week.iso_week, shards) | {"snapshot": week.snapshot_number}
    if request.is_part:
        document["answers"] = [vars(report) for report in reports]
    if paused := WeekState(installation, week.iso_week).paused:
        document["paused"] = paused.as_json()
        if errors and all(error.endswith(f": {paused.explanation}") for error in errors):
            sys.stderr.write(f"shardpost: {paused.explanation}\n")
            return NEEDS_ATTENTION, document
    return exit_code_of(installation.values(MailLimits), document, errors), document


def _counted(week: PreparedWeek, errors: list[str]) -> list[ShardStatus]:
    """Count the clients as `emails` does; add to the errors why that is not possible."""
    audience = week.frozen or EarlyAudience(week.snapshot, week.as_of)
    status = WeekStatus(week.state, audience, week.ledger.partitions)
    try:
        return status.by_shard(week.shards, wait=True)
    except ShardpostError as error:
        errors.append(f"the clients cannot be counted: {error}")
        return []


def at_rate(installation: Installation, patience: float) -> AbstractContextManager[object]:
    """Let one job at a time send, if there is a rate of mails for all.

    Another one waits at most `patience` seconds, then LockedError.
    """
    if installation.settings.mail_rate is None:
        return nullcontext()
    return exclusive(installation.files, "mail-rate", "a send at a rate", wait=patience)


def exit_code_of(limits: MailLimits, document: Mapping[str, Any], errors: Sequence[str]) -> int:
    """Return the exit code; `errors` are those of the stopped shards, and of counting.

    They, and too many clients without a mail, are printed to standard error.
    """
    if errors:
        sys.stderr.write(f"shardpost: {one_line('; '.join(errors))}\n")
        return COULD_NOT
    is_part = "answers" in document
    reasons = [] if is_part else too_many(limits, document)
    for reason, _ in reasons:
        sys.stderr.write(f"shardpost: {one_line(reason)}\n")
    return NEEDS_ATTENTION if document["unknown"] or reasons else DONE
