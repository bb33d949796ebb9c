"""An ISO week, its row once its audience is frozen, and its age.

`2026-W47` is Monday 00:00 UTC to the next Monday 00:00 UTC.

A clock that jumps ahead makes everything old at once. So ages are measured up to the clock's time,
but at most a few weeks after the last mailed weeks.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from shardpost.delta.table import Int32
from shardpost.errors import ShardpostError, WrongArgumentError
from shardpost.values.holding_rule import Rule
from shardpost.wording import counted

_FORM = re.compile(r"([0-9]{4})-W([0-9]{2})")
_WEEK = timedelta(days=7)


@dataclass(frozen=True, order=True)
class IsoWeek:
    """One ISO 8601 week; its year is the ISO year, which is not always the calendar's."""

    year: int
    number: int

    @classmethod
    def parse(cls, text: str) -> "IsoWeek":
        """Read `2026-W47`; UsageError if there is no such week, as 2025-W53."""
        match = _FORM.fullmatch(text)
        if not match:
            raise WrongArgumentError(f"week {text!r}: expected an ISO week such as 2026-W47")
        week = cls(int(match[1]), int(match[2]))
        try:
            week._monday()
            week.end  # noqa: B018 - the last week of the calendar has no end
        except (ValueError, OverflowError):
            raise WrongArgumentError(f"week {text}: there is no such week in {match[1]}") from None
        return week

    @classmethod
    def of(cls, at: datetime) -> "IsoWeek":
        """Return the week that an aware instant falls into."""
        year, number, _ = at.astimezone(UTC).isocalendar()
        return cls(year, number)

    @classmethod
    def last_ended(cls, at: datetime) -> "IsoWeek":
        """Return the last week that had ended at that instant."""
        return cls.of(at).previous

    @property
    def start(self) -> datetime:
        """The first instant of the week, UTC."""
        return datetime.combine(self._monday(), time.min, UTC)

    @property
    def end(self) -> datetime:
        """The first instant after the week, UTC."""
        return self.start + _WEEK

    @property
    def next(self) -> "IsoWeek":
        """The week after."""
        return self.of(self.end)

    @property
    def previous(self) -> "IsoWeek":
        """The week before."""
        return self.of(self.start - _WEEK)

    def as_of(self, now: datetime, *, early: bool) -> datetime:
        """Return the as-of instant of the week; raises ShardpostError if it is too early.

        It is the week's end, or now with `early`, which is refused for a week that has ended.
        """
        if now >= self.end and early:
            raise ShardpostError(
                f"week {self} ended {self.end:%Y-%m-%d} 00:00 UTC: --early is for a week still"
                " running; without it, this week is mailed as of its end"
            )
        if now >= self.end:
            return self.end
        if now < self.start:
            raise ShardpostError(
                f"week {self} has not begun: it starts {self.start:%Y-%m-%d} 00:00 UTC"
            )
        if not early:
            raise ShardpostError(
                f"week {self} has not ended: it ends {self.end:%Y-%m-%d} 00:00 UTC;"
                " --early mails it as of now"
            )
        return now

    def held_at(self, now: datetime, looked_at: datetime) -> datetime:
        """Return the as-of instant of an unfrozen audience.

        It is the earliest of now, the week's end, and the time up to which all records are known.
        """
        return min(now, self.end, looked_at)

    def why_skip(
        self, now: datetime, first_commit: datetime | None, most_days: int, later: timedelta
    ) -> str | None:
        """Return why a scheduled run skips this week, or None if it mails it.

        `first_commit` is the time of the first snapshot: a new installation does not mail weeks
        that ended before. `most_days` limits the days after the week's end, extended by how much
        `later` than by default the send starts.
        """
        if first_commit is None or first_commit >= self.end:
            return f"no snapshot was committed before week {self} ended"
        if self.is_too_late(now, most_days, later):
            return (
                f"week {self} ended more than {most_days} days ago"
                " (SHARDPOST_WEEKLY_LATENESS_DAYS); to mail it, run `shardpost email` by hand"
            )
        return None

    def is_too_late(self, now: datetime, most_days: int, later: timedelta) -> bool:
        """Return whether this week is too old for a scheduled run."""
        return now - self.end - later > timedelta(days=most_days)

    def _monday(self) -> date:
        return date.fromisocalendar(self.year, self.number, 1)

    def __str__(self) -> str:
        return f"{self.year:04d}-W{self.number:02d}"


@dataclass(frozen=True)
class FrozenWeek:
    """One row of `frozen_weeks`.

    From which snapshot, as of when, and by which rule of who holds. Once `audience_erased_at` is
    set, the audience is erased or being erased: nobody reads it.
    """

    week: str
    audience: str
    snapshot: int
    as_of: datetime
    frozen_at: datetime
    shards: Int32
    recipients: int
    rule: Rule
    audience_erased_at: datetime | None = None
    unknown_positions: int = 0

    @property
    def why_no_audience(self) -> str | None:
        """Why the week can no longer be mailed; None while its audience is there."""
        if self.audience_erased_at is None:
            return None
        return (
            f"the audience of {self.week}, {counted(self.recipients, 'client')}, was erased on"
            f" {self.audience_erased_at:%Y-%m-%d} (SHARDPOST_AUDIENCE_DAYS): the week can no"
            " longer be mailed"
        )

    def require_audience(self) -> None:
        """Refuse a week whose audience was erased."""
        if why := self.why_no_audience:
            raise ShardpostError(
                f"{why}; `shardpost emails --week {self.week}` shows what its ledger has"
            )

    def require_shards(self, shards: int) -> None:
        """Refuse a ledger whose number of partitions differs from the audience's shards."""
        if shards != self.shards:
            raise ShardpostError(
                f"the audience of {self.week} was frozen in {counted(self.shards, 'shard')}, but"
                f" the ledger's topic has {counted(shards, 'partition')}: the number of partitions"
                " must not change"
            )


# How far the clock may be ahead of the mailed weeks, since weeks may be skipped.
MOST_AHEAD = timedelta(days=35)


def certain_time(clock: datetime, week_ends: Iterable[datetime]) -> tuple[datetime, str | None]:
    """Return the time up to which ages are measured, and a warning if that is not the clock's.

    `week_ends` are those of all mailed weeks. If there are two or more, the newest is ignored: a
    run with a wrong clock may have started it.
    """
    ends = sorted(week_ends)
    if not ends or clock <= (latest := ends[-2:][0] + MOST_AHEAD):
        return clock, None
    return latest, (
        f"the clock says {clock:%Y-%m-%d}, long after the last mailed weeks: ages are measured as"
        f" of {latest:%Y-%m-%d}. If the clock is right and no week was mailed since then, set fewer"
        " days for one run"
    )
