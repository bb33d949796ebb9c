"""How old a week is: by a clock that may be wrong, so never by the clock alone.

A clock that jumps ahead makes everything old at once. So ages are measured up to the clock's time,
but at most some weeks after the last weeks that were mailed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

# How far the clock may be ahead of the weeks that were mailed: some may be left out.
MOST_AHEAD = timedelta(days=35)


@dataclass(frozen=True)
class AgeClock:
    """The time that ages are measured up to, and what the machine's clock says."""

    at: datetime
    clock: datetime

    @classmethod
    def of(cls, clock: datetime, week_ends: Iterable[datetime]) -> "AgeClock":
        """Return the time to measure by; `week_ends` are those of all weeks that were mailed.

        The newest of them is left out if there are two: a run by a wrong clock may have begun it.
        """
        ends = sorted(week_ends)
        if not ends:
            return cls(clock, clock)
        return cls(min(clock, ends[-2:][0] + MOST_AHEAD), clock)

    @property
    def warning(self) -> str | None:
        """What a person should know of a clock that is far ahead of the weeks; else None."""
        if self.at == self.clock:
            return None
        return (
            f"by the clock it is {self.clock:%Y-%m-%d}, and the weeks that were mailed last are far"
            f" before that: ages are measured up to {self.at:%Y-%m-%d}. If the clock is right, and"
            " no week was mailed since, set fewer days for one run"
        )

    def is_older(self, days: int, *since: datetime) -> bool:
        """Tell whether more than so many days have passed since the latest of these times."""
        return self.at - max(since) > timedelta(days=days)
