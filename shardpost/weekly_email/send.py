"""The mode that sends: each open client of the run's shards gets its e-mail."""

import sys
import time
from typing import Any

from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION
from shardpost.printable import one_line
from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult
from shardpost.weekly_email.ledger_guard import mark_end
from shardpost.weekly_email.model.email_request import EmailRequest
from shardpost.weekly_email.model.prepared_week import PreparedWeek
from shardpost.weekly_email.model.shard_counts import ShardReport, counts_document
from shardpost.weekly_email.model.too_many import too_many
from shardpost.weekly_email.send_shard import SendOptions
from shardpost.weekly_email.settle_refusals import settle_refusals
from shardpost.weekly_email.shard_locks import locked
from shardpost.weekly_email.spark.send_tasks import send_shards
from shardpost.weekly_email.unsubscribed import Unsubscribed


def send(week: PreparedWeek, request: EmailRequest, settings: Settings) -> JobResult:
    """Send; return the exit code and the counts of each shard. LockedError beside another run."""
    resend = request.resend_policy(settings.on_unknown)
    has_unsubscribed = Unsubscribed(settings, week.snapshot.number)
    options = SendOptions(week.context, resend, request.now, time.time(), has_unsubscribed)
    rate = settings.mail_rate / request.groups if settings.mail_rate else None
    with locked(settings, week.iso_week, week.shards):
        reports = send_shards(settings, week, options, rate)
        reports = settle_refusals(settings, week.iso_week, reports)
        mark_end(settings, week.iso_week, options.clock())
    document: dict[str, Any] = counts_document(week.iso_week, reports)
    document["snapshot"] = week.snapshot_number
    reasons = too_many(settings, week.iso_week, document["shards"])
    return _exit_code(reports, reasons), document


def _exit_code(reports: list[ShardReport], reasons: list[str]) -> int:
    """Say on standard error which shards stopped, or that too many clients got no mail.

    Return the exit code.
    """
    stopped = [report for report in reports if report.error]
    if stopped:
        errors = "; ".join(f"shard {report.shard}: {report.error}" for report in stopped)
        sys.stderr.write(f"shardpost: {one_line(errors)}\n")
        return COULD_NOT
    for reason in reasons:
        sys.stderr.write(f"shardpost: {reason}\n")
    is_unknown = any(report.unknown for report in reports)
    return NEEDS_ATTENTION if is_unknown or reasons else DONE
