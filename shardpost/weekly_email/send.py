"""The mode that sends: each open client of the run's shards gets its e-mail."""

import logging
import time
from collections.abc import Sequence

from shardpost.delta import snapshots
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult
from shardpost.weekly_email import frozen_weeks
from shardpost.weekly_email.delivery_status import status_by_shard
from shardpost.weekly_email.ledger_guard import mark_end
from shardpost.weekly_email.model.email_request import EmailRequest
from shardpost.weekly_email.model.prepared_week import PreparedWeek
from shardpost.weekly_email.model.shard_counts import ShardReport
from shardpost.weekly_email.model.week_status import ShardStatus
from shardpost.weekly_email.send_result import document_of, exit_code_of
from shardpost.weekly_email.send_shard import SendOptions
from shardpost.weekly_email.settle_refusals import settle_refusals
from shardpost.weekly_email.shard_locks import locked
from shardpost.weekly_email.spark.send_tasks import send_shards
from shardpost.weekly_email.unsubscribed import Unsubscribed
from shardpost.weekly_email.week_audience import EarlyAudience

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
    with locked(settings, week.iso_week, week.shards):
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
