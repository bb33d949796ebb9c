"""Ages by times that were noted, so that one clock that has jumped makes nothing old."""

from collections.abc import Iterable
from datetime import datetime, timedelta


def old_before(
    times: Iterable[datetime], now: datetime, age: timedelta, longest_gap: timedelta
) -> datetime | None:
    """Return before when something is of that age; None if no time was noted up to now.

    Counted back from the newest time up to now; of a gap between two of them `longest_gap` counts
    at most. So one clock that was ahead makes nothing older by more than that.
    """
    newest_first = sorted((at for at in times if at <= now), reverse=True)
    if not newest_first:
        return None
    found, *earlier = newest_first
    left = age
    for at in earlier:
        counts = min(found - at, longest_gap)
        if counts >= left:
            break
        found, left = at, left - counts
    return found - left
