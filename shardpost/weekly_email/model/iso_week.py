"""ISO weeks: `2026-W47` is Monday 00:00 UTC up to the next Monday 00:00 UTC."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from shardpost.errors import ShardpostError, UsageError

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
        found = _FORM.fullmatch(text)
        if not found:
            raise UsageError(f"week {text!r}: expected an ISO week such as 2026-W47")
        week = cls(int(found[1]), int(found[2]))
        try:
            week._monday()
            week.end  # noqa: B018 - the last week of the calendar has no end
        except (ValueError, OverflowError):
            raise UsageError(f"week {text}: there is no such week in {found[1]}") from None
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
        """Return the instant as of which clients hold; ShardpostError if it is too early.

        That is the week's end, or with `early` now; a week that has ended is not early any more.
        """
        if now >= self.end and early:
            raise ShardpostError(
                f"week {self} ended {self.end:%Y-%m-%d} 00:00 UTC: --early is for a week that goes"
                " on; without it, this one is mailed as of its end"
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
                " --early (in the form of Airflow: Early) mails it as of now"
            )
        return now

    def why_skip(self, now: datetime, first_commit: datetime | None, most_days: int) -> str | None:
        """Return why a scheduled run skips this week, or None if it mails it.

        `first_commit` is when the first snapshot was committed: a new installation does not mail
        weeks that had ended before. `most_days` is how many days after its end a week may still be
        mailed.
        """
        if first_commit is None or first_commit >= self.end:
            return f"no snapshot was committed before week {self} ended"
        if now - self.end > timedelta(days=most_days):
            return (
                f"week {self} ended more than {most_days} days ago"
                " (SHARDPOST_WEEKLY_LATENESS_DAYS); to mail it, run `shardpost email` by hand"
            )
        return None

    def _monday(self) -> date:
        return date.fromisocalendar(self.year, self.number, 1)

    def __str__(self) -> str:
        return f"{self.year:04d}-W{self.number:02d}"
