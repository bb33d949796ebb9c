"""The run of the weekly e-mail: freeze who holds as of the week's end, then mail each client once.

One request, one of four modes: skip the week, freeze only, dry run, send.
"""

import logging
import time
from collections.abc import Sequence

from shardpost.delta import snapshots
from shardpost.errors import DONE, ShardpostError
from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult
from shardpost.weekly_email import frozen_weeks
from shardpost.weekly_email.checks import check
from shardpost.weekly_email.delivery_status import EarlyAudience, status_by_shard
from shardpost.weekly_email.ledger_guard import locked_shards, mark_end, mark_start
from shardpost.weekly_email.model.email_request import EmailRequest, Mode, PreparedWeek
from shardpost.weekly_email.model.week_report import ShardReport, ShardStatus
from shardpost.weekly_email.run_results import (
    document_of,
    exit_code_of,
    frozen_result,
    skipped_result,
    why_skip,
)
from shardpost.weekly_email.send_plan import Unsubscribed
from shardpost.weekly_email.send_shard import SendOptions, settle_refusals
from shardpost.weekly_email.spark.audience import freeze
from shardpost.weekly_email.spark.dry_run import dry_run
from shardpost.weekly_email.spark.send import send_shards, spark_errors_of


def prepare(request: EmailRequest, settings: Settings) -> PreparedWeek:
    """Return the week with its audience, frozen by this run if the request says so.

    Raises what `check` refuses.
    """
    checked = check(request, settings)
    week = checked.week
    if request.is_real:
        mark_start(settings, request.week, checked.ledger, request.now)
    if request.freezes and not week.frozen:
        return week.with_frozen(freeze(settings, week, request.now))
    return week


log = logging.getLogger(__name__)


def send(week: PreparedWeek, request: EmailRequest, settings: Settings) -> JobResult:
    """Send; return the exit code and the counts of each shard. LockedError beside another run."""
    options = SendOptions(
        week.context,
        request.resend_policy(settings.on_unknown),
        request.now,
        time.time(),
        Unsubscribed(settings, week.snapshot.number),
        request.early,
    )
    rate = settings.mail_rate / request.groups if settings.mail_rate else None
    with locked_shards(settings, week.iso_week, week.shards):
        frozen_weeks.require_audience(settings, week.iso_week, week.frozen)
        if week.frozen is None:  # its contacts are the snapshot's
            snapshots.require_contacts(settings, week.snapshot)
        reports = send_shards(settings, week, options, rate)
        reports = settle_refusals(settings, week.iso_week, reports)
        mark_end(settings, week.iso_week, options.clock())
        shards = _counted(settings, week, reports)
    errors = {report.shard: report.error for report in reports if report.error}
    document = document_of(week, shards)
    return exit_code_of(settings, document, errors), document


def _counted(
    settings: Settings, week: PreparedWeek, reports: Sequence[ShardReport]
) -> list[ShardStatus]:
    """Count as `emails` does; what the shards counted themselves where that cannot be done."""
    audience = week.frozen or EarlyAudience(week.snapshot, week.as_of)
    try:
        return status_by_shard(
            settings, week.iso_week, audience, week.partitions, week.shards, wait=True
        )
    except ShardpostError as error:
        log.warning("%s: the counts are those of the shards: %s", week.iso_week, error)
        return [ShardStatus(report) for report in reports]


def run(request: EmailRequest, settings: Settings) -> JobResult:
    """Do what the request's mode says; return the exit code and the JSON result."""
    if reason := why_skip(request, settings):
        log.info("skipped: %s", reason)
        return DONE, skipped_result(request, reason)
    with spark_errors_of(request.week):
        week = prepare(request, settings)
        match request.mode:
            case Mode.FREEZE | Mode.LIST_GROUPS:
                return DONE, frozen_result(week, settings)
            case Mode.DRY_RUN:
                return DONE, dry_run(week, request, settings)
            case Mode.SEND:
                return send(week, request, settings)
