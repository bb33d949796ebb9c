"""Which snapshots are kept: fewer of them with age.

Ages do not trust the clock: between two commits, and after the last one, at most a day counts. So
whatever a clock does that jumps, or a time without commits, snapshots age by a day.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

# Of a compaction that follows its topics, and makes one every second, a day leaves 8,600.
ALL_FOR = timedelta(hours=2)
MINUTELY_FOR = timedelta(days=2)
HOURLY_FOR = timedelta(days=7)
# What counts of the time between two commits.
LONGEST_GAP = timedelta(days=1)
# Readers may still be reading a snapshot so long after it was offered for the last time.
GRACE = timedelta(hours=1)

RETENTION_IN_WORDS = (
    "all are kept for two hours, then the last of each minute for"
    f" {MINUTELY_FOR.days} days, of each hour for {HOURLY_FOR.days} days, then of each day"
)


def kept_snapshots(
    committed: Iterable[tuple[int, datetime]],
    now: datetime,
    days: int,
    ago: timedelta | None = None,
) -> set[int]:
    """Return the numbers of the snapshots that are kept, of (number, when it was committed).

    `days` is the age of the oldest. With `ago`, apply the rule as of `now - ago`; the result is a
    superset of the one at `now`.
    """
    newest_first = sorted(committed, reverse=True)
    found: set[int] = set()
    age = -(ago or timedelta(0))
    after = now
    for number, at in newest_first:
        age += min(max(after - at, timedelta(0)), LONGEST_GAP)
        if not found or (age <= timedelta(days=days) and _is_kept(age, at, after)):
            found.add(number)
        after = at
    return found


def latest_certain_time(committed: Iterable[tuple[int, datetime]], now: datetime) -> datetime:
    """Return a time that has certainly passed, from (number, when it was committed).

    By each commit and what counts of the time since; so one clock that was right is enough.
    """
    certain = elapsed = timedelta(0)
    after, found = now, now
    for _, at in sorted(committed, reverse=True):
        elapsed += min(max(after - at, certain), LONGEST_GAP)
        found, after = min(found, at + elapsed), at
    return found


def _is_kept(age: timedelta, at: datetime, after: datetime) -> bool:
    """Tell whether a snapshot of that age is kept, of that time; the next one is of `after`."""
    if age <= ALL_FOR:
        return True
    if age <= MINUTELY_FOR:
        return (at.date(), at.hour, at.minute) != (after.date(), after.hour, after.minute)
    if age <= HOURLY_FOR:
        return (at.date(), at.hour) != (after.date(), after.hour)
    return at.date() != after.date()
