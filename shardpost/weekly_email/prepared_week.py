"""The week that a run freezes or mails, and the checks before it, without a JVM.

Settings, shards, the week, its snapshot and its ledger are checked in that order. `preview_week`
only checks: a hint before Java starts. `prepare_week` starts a run, and checks again under the lock
of freezes.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from shardpost.delta import snapshots
from shardpost.delta.snapshot import NEVER, Counts, Snapshot
from shardpost.errors import NoSnapshotError, ShardpostError, WrongArgumentError
from shardpost.holders import plausibility
from shardpost.installation import Installation
from shardpost.rebuilds import registry
from shardpost.topics import guards
from shardpost.weekly_email.email_job import EmailRequest, parse_shards, shard_text
from shardpost.weekly_email.frozen_weeks import RECIPIENTS, FrozenWeeks
from shardpost.weekly_email.model.email_context import EmailContext, Sender
from shardpost.weekly_email.model.mail_templates import MailTemplates
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import WeekPausedError
from shardpost.weekly_email.own_templates import TemplateSettings, templates_of
from shardpost.weekly_email.smtp_server import SenderSettings, SmtpServer
from shardpost.weekly_email.week_state import WeekState

ACCEPT = "Nothing was frozen or mailed. If this is intended, run it once with --accept-drop"


@dataclass(frozen=True)
class PreparedWeek:
    """The week, its as-of instant, and its frozen audience or None.

    Every mode of the job starts from it. `snapshot` is the newest one; `shards` are this run's, of
    all partitions of `ledger`. Raises ShardpostError for an audience that was erased or has another
    number of shards.
    """

    state: WeekState
    ledger: guards.StoreTopic
    as_of: datetime
    sender: Sender
    snapshot: Snapshot
    shards: list[int]
    frozen: FrozenWeek | None = None
    templates: MailTemplates = field(default_factory=MailTemplates)

    def __post_init__(self) -> None:
        if self.frozen is not None:
            self.frozen.require_audience()
            self.frozen.require_shards(self.ledger.partitions)

    @property
    def iso_week(self) -> IsoWeek:
        """The week."""
        return self.state.week

    @property
    def snapshot_number(self) -> int:
        """The snapshot of the audience."""
        return self.frozen.snapshot if self.frozen else self.snapshot.number

    @property
    def context(self) -> EmailContext:
        """The context that the week's e-mails share."""
        country = (self.frozen or self.snapshot).rule.country
        snapshots = (self.snapshot_number, self.snapshot.number)
        common = (self.iso_week, self.as_of, country, self.sender, self.templates)
        return EmailContext(*common, *snapshots)

    def as_frozen(self, shards_per_task: int) -> dict[str, Any]:
        """Return the result of a freeze: number of clients (None: not frozen), groups of shards."""
        starts = range(0, len(self.shards), shards_per_task)
        return {
            "week": str(self.iso_week),
            "snapshot": self.snapshot_number,
            "as_of": self.as_of.isoformat(),
            "shards": self.ledger.partitions,
            "recipients": self.frozen.recipients if self.frozen else None,
            "groups": [shard_text(self.shards[at : at + shards_per_task]) for at in starts],
            "skipped": None,
        }


def preview_week(
    installation: Installation, request: EmailRequest, state: WeekState
) -> PreparedWeek:
    """Return the week of a request, with its audience if frozen; write nothing.

    Raises UsageError for unusable settings or templates, for shards that do not exist, and if the
    rule of who holds differs from the newest snapshot's; ShardpostError for a week that has not
    ended, that the newest snapshot does not cover, or that is unfrozen with pruned history, and for
    a ledger that may have lost records of the week; WeekClosedError for a closed week;
    WeekPausedError for a paused week unless the run is read-only.
    """
    sender = installation.values(SenderSettings).sender(installation.values(SmtpServer))
    templates = templates_of(installation.values(TemplateSettings))
    latest = request.week.as_of(request.now, early=request.early)
    state.require_open(request.now)
    if request.is_real and state.paused:
        raise WeekPausedError(state.paused.explanation)
    ledger = state.require_ledger()
    chosen = parse_shards(request.shards, ledger.partitions)
    snapshot = snapshots.current(installation.tables)
    if not request.country_changed:
        registry.require_rule(installation, snapshot)
    at_most = request.as_of if request.early and request.as_of else latest
    frozen = state.frozen
    as_of = frozen.as_of if frozen else request.week.held_at(at_most, snapshot.looked_at)
    _require_not_ahead(snapshot, request.now)
    if frozen is None:
        _require_covered(snapshot, request, as_of)
    week = PreparedWeek(state, ledger, as_of, sender, snapshot, chosen, frozen, templates)
    if request.is_real:
        guards.require_owner(installation)
        require_recent(snapshot, request.now, installation.settings.mail_snapshot_age)
    return week


def prepare_week(
    installation: Installation, request: EmailRequest, state: WeekState
) -> PreparedWeek:
    """Return the same for a run that freezes or mails the week, and mark its ledger."""
    week = preview_week(installation, request, state)
    state.mark_start(week.ledger, request.now)
    return week


class SnapshotBehindError(ShardpostError):
    """The newest snapshot lacks records that a run needs, which a later snapshot has."""


def why_behind(installation: Installation, request: EmailRequest) -> str | None:
    """Return what a run that mails its week lacks until the next compaction; None if nothing."""
    try:
        snapshot = snapshots.current(installation.tables)
        if WeekState(installation, request.week).frozen is None:
            _require_covered(snapshot, request, request.week.end)
        require_recent(snapshot, request.now, installation.settings.mail_snapshot_age)
    except (NoSnapshotError, SnapshotBehindError) as error:
        return str(error)
    return None


def require_no_collapse(state: WeekState, counts: dict[str, int], in_snapshot: Counts) -> None:
    """Refuse an audience with far fewer clients than the last frozen week before.

    Also refuse, even for the first week, a snapshot with far more positions on unknown exchanges,
    and an audience without a client: UsageError for a week that ended before the first snapshot.
    """
    before, most = state.frozen_before(), state.installation.settings.max_drop
    known = {RECIPIENTS: before.recipients} if before else {}
    if before and before.audience_erased_at is None:
        known = FrozenWeeks(state.installation.tables).counts(before.audience)
    what = f"week {state.week} after {before.week}" if before else f"week {state.week}"
    positions = in_snapshot.positions
    plausibility.require_no_fall(what, known, counts, most=most, advice=lambda: ACCEPT)
    more = in_snapshot.unknown.unknown_positions - (before.unknown_positions if before else 0)
    if positions >= plausibility.LEAST and more > most * positions:
        limit = f"by more than SHARDPOST_MAX_DROP={most:g} of {positions} allows"
        why = f"{what}: {in_snapshot.unknown}: {more} more, {limit}. {ACCEPT}"
        raise plausibility.CollapseError(why)
    if not counts[RECIPIENTS]:
        first = min(snapshots.committed_times(state.installation.tables).values())
        kind = WrongArgumentError if first >= state.week.end else plausibility.CollapseError
        since = f"(the first snapshot is of {first:%Y-%m-%d %H:%M} UTC)"
        raise kind(f"{what}: no client held stock that counts at its end {since}. {ACCEPT}")


def _require_covered(snapshot: Snapshot, request: EmailRequest, as_of: datetime) -> None:
    """Refuse a snapshot that lacks records before the week's end (early: its start).

    Also refuse one that no longer has the history of that instant.
    """
    week, what = request.week, "started" if request.early else "ended"
    since = week.start if request.early else week.end
    if snapshot.looked_at < since:
        raise SnapshotBehindError(
            f"week {week} {what} {since:%Y-%m-%d %H:%M} UTC, and {_coverage(snapshot)}: run"
            " `shardpost compact` first"
        )
    try:
        snapshot.require_history(as_of)
    except ShardpostError as error:
        raise ShardpostError(
            f"week {week} is not frozen, and its holders as of then can no longer be computed:"
            f" {error}"
        ) from None


def require_recent(snapshot: Snapshot, now: datetime, most_seconds: float) -> None:
    """Refuse a snapshot too old to show recent unsubscriptions."""
    if now - snapshot.looked_at > timedelta(seconds=most_seconds):
        raise SnapshotBehindError(
            f"{_coverage(snapshot)}, more than {most_seconds:g} s ago"
            " (SHARDPOST_MAIL_SNAPSHOT_AGE), and clients may have unsubscribed since then: run"
            " `shardpost compact` first"
        )


def _require_not_ahead(snapshot: Snapshot, now: datetime) -> None:
    """Refuse a snapshot from the future: its coverage is unknown."""
    if snapshot.is_ahead(now):
        raise ShardpostError(
            f"{_coverage(snapshot)}, but this machine's clock says {now:%Y-%m-%d %H:%M} UTC:"
            " either the clock of a compaction was ahead, or this clock is behind. Correct the"
            " wrong clock (`date -u`), then run `shardpost compact`"
        )


def _coverage(snapshot: Snapshot) -> str:
    """Return a phrase for the time up to which a snapshot has all records."""
    if snapshot.looked_at == NEVER:
        of = "was never confirmed to have all records of its inputs"
    else:
        of = f"has the inputs as of {snapshot.looked_at:%Y-%m-%d %H:%M} UTC"
    behind = " (later records are behind an open transaction; `shardpost compact` names it)"
    return f"snapshot {snapshot.number} {of}{behind if snapshot.incomplete else ''}"
