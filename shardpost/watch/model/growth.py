"""How long a disk lasts at the rate at which its free space has gone."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from shardpost.alerts.model.alert import Condition
from shardpost.watch.model.rules import DISK_FULL

GIB = 1 << 30
# Below this much a compaction of a few million positions may not find room for what it rewrites.
LEAST_FREE = 5 * GIB
WARN_BEFORE = timedelta(days=7)
# A rate over a shorter time says nothing: a rewritten table is space that comes back.
LEAST_TIME = timedelta(days=1)

# When, and how many bytes were free.
FreeSpace = tuple[datetime, float]


def disk_full(history: Sequence[FreeSpace], now: datetime, free: float) -> Condition | None:
    """Return that the disk is full soon, or None; `history` is oldest first."""
    if free < LEAST_FREE:
        text = f"{free / GIB:.1f} GiB are free: expected at least {LEAST_FREE / GIB:g} GiB"
        return DISK_FULL.broken("", text)
    earlier = [(at, was) for at, was in history if at <= now - LEAST_TIME]
    if not earlier:
        return None
    at, was = earlier[0]
    gone = was - free
    if gone <= 0:
        return None
    left = (now - at) * (free / gone)
    if left >= WARN_BEFORE:
        return None
    text = (
        f"{free / GIB:.1f} GiB are free, and {gone / GIB:.1f} GiB went since {at:%Y-%m-%d %H:%M}"
        f" UTC: at that rate it is full in {left / timedelta(days=1):.1f} days"
    )
    return DISK_FULL.broken("", text)
