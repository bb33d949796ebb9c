"""The Spark job `weekly_email` as commands and DAGs submit it, and the request it is given."""

from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from pathlib import Path

from shardpost.instants import parse_instant
from shardpost.spark.job_spec import JobSpec, job_parser
from shardpost.weekly_email.model.email_request import EmailRequest, Mode
from shardpost.weekly_email.model.week import IsoWeek


def parser(description: str | None = None) -> ArgumentParser:
    """Return the parser of this job's arguments."""
    made = job_parser(description)
    made.add_argument("--week", required=True, help="ISO week such as 2026-W47")
    made.add_argument("--shards", help="such as 0-3 or 0,2,5-7; default: all")
    made.add_argument("--dry-run", action="store_true", help="list who would get what now")
    made.add_argument(
        "--recipients",
        type=Path,
        help="where a dry run writes its lists: a folder, for JSON lines, or a file, for text",
    )
    made.add_argument("--early", action="store_true", help="a week that has not ended, as of now")
    made.add_argument("--as-of", type=parse_instant, help="with --early: not later than this")
    made.add_argument(
        "--again",
        choices=["FAILED", "SUPPRESSED"],
        help="also mail clients that failed, at their current contact, or that were not subscribed",
    )
    made.add_argument(
        "--on-unknown", choices=["hold", "resend"], help="default: SHARDPOST_ON_UNKNOWN"
    )
    made.add_argument("--groups", type=int, default=1, help="jobs that share the rate limit")
    made.add_argument("--freeze-only", action="store_true", help="freeze, and send nothing")
    made.add_argument("--scheduled-at", help="a scheduled run, which may skip its week")
    made.add_argument("--now", type=parse_instant, help="the time, ISO 8601; default: the clock's")
    return made


def request_of(arguments: Namespace) -> EmailRequest:
    """Return the request; UsageError for a week that does not exist."""
    return EmailRequest(
        week=IsoWeek.parse(arguments.week),
        now=arguments.now or datetime.now(UTC),
        mode=_mode(freeze_only=arguments.freeze_only, dry_run=arguments.dry_run),
        shards=arguments.shards,
        early=arguments.early,
        as_of=arguments.as_of,
        again_failed=arguments.again == "FAILED",
        again_suppressed=arguments.again == "SUPPRESSED",
        on_unknown=arguments.on_unknown,
        groups=arguments.groups,
        is_scheduled=bool(arguments.scheduled_at),
        recipients=arguments.recipients,
    )


def _mode(*, freeze_only: bool, dry_run: bool) -> Mode:
    if freeze_only:
        return Mode.LIST_GROUPS if dry_run else Mode.FREEZE
    return Mode.DRY_RUN if dry_run else Mode.SEND


WEEKLY_EMAIL = JobSpec("weekly_email")
