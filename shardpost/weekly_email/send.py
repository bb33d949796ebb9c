"""The mode that sends: each open client of the run's shards gets its e-mail."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION
from shardpost.locks import exclusive
from shardpost.settings import Settings
from shardpost.spark.job import JobResult
from shardpost.weekly_email.job import WEEKLY_EMAIL
from shardpost.weekly_email.model.email_request import EmailRequest
from shardpost.weekly_email.model.prepared_week import PreparedWeek
from shardpost.weekly_email.model.shard_counts import ShardReport, counts_document
from shardpost.weekly_email.send_shard import SendOptions
from shardpost.weekly_email.spark.send_tasks import send_shards


def send(week: PreparedWeek, request: EmailRequest, settings: Settings) -> JobResult:
    """Send; return the exit code and the counts of each shard. LockedError beside another run."""
    resend = request.resend_policy(settings.on_unknown)
    options = SendOptions(week.context, resend, request.now, started=time.time())
    rate = settings.mail_rate / request.groups if settings.mail_rate else None
    with _locked(settings, week):
        reports = send_shards(settings, week, options, rate)
    document: dict[str, Any] = {"snapshot": week.snapshot_number}
    return _exit_code(reports), counts_document(week.iso_week, reports) | document


@contextmanager
def _locked(settings: Settings, week: PreparedWeek) -> Iterator[None]:
    """Hold the lock of each shard."""
    with ExitStack() as locks:
        for shard in week.shards:
            name = f"{WEEKLY_EMAIL.name}-{week.iso_week}-{shard}"
            what = f"the weekly e-mail of {week.iso_week}, shard {shard},"
            locks.enter_context(exclusive(settings, name, what))
        yield


def _exit_code(reports: list[ShardReport]) -> int:
    """Name the shards that stopped in one line of standard error; return the exit code."""
    stopped = [report for report in reports if report.error]
    if stopped:
        reasons = "; ".join(f"shard {report.shard}: {report.error}" for report in stopped)
        sys.stderr.write(f"shardpost: {reasons}\n")
        return COULD_NOT
    return NEEDS_ATTENTION if any(report.unknown for report in reports) else DONE
