"""Instants: as people write them, as Kafka has them, and how old something is by them.

In ISO 8601, UTC where no zone is given. Ages are by times that were noted, so that one clock
that has jumped makes nothing old.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from shardpost.errors import UsageError

# What a timestamp of Kafka is here, in milliseconds since 1970: any 64 bits can be one, -1 is none,
# and neither Python nor ISO 8601 has years after 9999.
EARLIEST_MS = 0
LATEST_MS = 253_402_300_799_999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_instant(text: str) -> datetime:
    """Return the instant in UTC; a date alone is its midnight. UsageError for anything else."""
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"time {text!r}: expected ISO 8601, such as 2026-11-23, 2026-11-23T08:00 or"
            " 2026-11-23T08:00:00+01:00"
        ) from None


_DURATION = re.compile(r"([0-9]{1,4})(s|m|h|d|w)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_duration(text: str) -> timedelta:
    """Return a duration as `90s`, `30m`, `2h`, `1d` or `4w`; UsageError for anything else."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise UsageError(
            f"duration {text!r}: expected a number and s, m, h, d or w, such as 30m or 2h"
        )
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def instant_of(timestamp_ms: int) -> datetime:
    """Return a record's timestamp as an instant, the nearest from EARLIEST_MS to LATEST_MS."""
    return _EPOCH + timedelta(milliseconds=min(max(EARLIEST_MS, timestamp_ms), LATEST_MS))


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
