"""What a run of the weekly e-mail refuses before it freezes or mails: no JVM, no writes.

Settings, shards, the week, its snapshot and its ledger are looked at in that order.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from shardpost import ownership
from shardpost.delta import snapshots
from shardpost.delta.snapshot import NEVER, Snapshot
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.rebuilds import registry
from shardpost.topics.stores import StoreTopic
from shardpost.weekly_email import closed_weeks, paused_weeks
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_guard import LedgerGuard
from shardpost.weekly_email.model import email_request
from shardpost.weekly_email.model.email_request import EmailRequest, PreparedWeek, RunRules
from shardpost.weekly_email.model.mail_templates import MailTemplates
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.own_templates import TemplateSettings, templates_of
from shardpost.weekly_email.smtp_server import SenderSettings, SmtpServer


def check(
    request: EmailRequest,
    installation: Installation,
    templates_of: Callable[[TemplateSettings], MailTemplates] = templates_of,
) -> tuple[PreparedWeek, StoreTopic]:
    """Return the week that a request is about, with its audience if that is frozen; its ledger.

    UsageError for settings and templates that no mail can be written with, for shards that do not
    exist, and for another country than the newest snapshot's;
    ShardpostError for a week that has not ended, that the newest snapshot does not cover, or that
    is not frozen and whose history was pruned, and for a ledger that may have lost records
    of the week; WeekClosedError for a week that is closed; WeekPausedError for one that is paused,
    unless the run only looks.
    """
    email_request.require_shard_form(request.shards)
    sender = installation.values(SenderSettings).sender(installation.values(SmtpServer))
    templates = templates_of(installation.values(TemplateSettings))
    latest = request.week.as_of(request.now, early=request.early)
    closed_weeks.require_open(installation, request.week, request.now)
    if request.is_real:
        paused_weeks.require_not_paused(installation.tables, request.week)
    ledger = LedgerGuard(installation, request.week).require_ledger()
    chosen = email_request.parse_shards(request.shards, ledger.partitions)
    snapshot = snapshots.current(installation.tables)
    if not request.country_changed:
        registry.require_country(installation, snapshot)
    at_most = request.as_of if request.early and request.as_of else latest
    frozen = FrozenWeeks(installation.tables).find(request.week)
    as_of = frozen.as_of if frozen else request.week.held_at(at_most, snapshot.looked_at)
    _require_not_ahead(snapshot, request.now)
    if frozen is None:
        _require_covered(snapshot, request)
        _require_history(snapshot, request.week, as_of)
    partitions = ledger.partitions
    audience = (snapshot, partitions, chosen, frozen)
    week = PreparedWeek(request.week, as_of, sender, *audience, templates)
    if request.is_real:
        ownership.require(installation)
        most_old = installation.values(RunRules).mail_snapshot_age
        _require_recent(snapshot, request.now, most_old)
    return week, ledger


def _require_covered(snapshot: Snapshot, request: EmailRequest) -> None:
    """Refuse a snapshot that lacks records of before the week's end; of an early one, its start."""
    week, what = request.week, "started" if request.early else "ended"
    since = week.start if request.early else week.end
    if snapshot.looked_at < since:
        raise ShardpostError(
            f"week {week} {what} {since:%Y-%m-%d %H:%M} UTC, and {_coverage(snapshot)}: run"
            " `shardpost compact` first"
        )


def _require_history(snapshot: Snapshot, week: IsoWeek, as_of: datetime) -> None:
    try:
        snapshot.require_history(as_of)
    except ShardpostError as error:
        raise ShardpostError(
            f"week {week} is not frozen, and its holders can no longer be computed: {error}"
        ) from None


def _require_recent(snapshot: Snapshot, now: datetime, most_seconds: float) -> None:
    """Refuse a snapshot that is too old to tell who has unsubscribed lately."""
    if now - snapshot.looked_at > timedelta(seconds=most_seconds):
        raise ShardpostError(
            f"{_coverage(snapshot)}, more than {most_seconds:g} s ago"
            " (SHARDPOST_MAIL_SNAPSHOT_AGE): clients may have unsubscribed since: run"
            " `shardpost compact` first"
        )


def _require_not_ahead(snapshot: Snapshot, now: datetime) -> None:
    """Refuse a snapshot of the future: what it covers is unknown."""
    if snapshot.is_ahead(now):
        raise ShardpostError(
            f"{_coverage(snapshot)}, but this machine's clock says {now:%Y-%m-%d %H:%M} UTC: either"
            " the clock of a compaction was ahead, or this one is behind. Correct the wrong clock"
            " (`date -u`), then run `shardpost compact`"
        )


def _coverage(snapshot: Snapshot) -> str:
    """Say up to which time a snapshot has all records, and what holds up later ones."""
    if snapshot.looked_at == NEVER:
        of = "was never confirmed to have all records of its inputs"
    else:
        of = f"is of {snapshot.looked_at:%Y-%m-%d %H:%M} UTC"
    behind = " (later records wait after an open transaction; `shardpost compact` names it)"
    return f"snapshot {snapshot.number} {of}{behind if snapshot.incomplete else ''}"
