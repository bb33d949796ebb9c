"""The newest snapshot: its age and its counts."""

from datetime import datetime

from shardpost.delta import snapshots
from shardpost.delta.snapshot import NEVER
from shardpost.settings import Settings
from shardpost.watch.model.found import Found
from shardpost.watch.model.rules import SNAPSHOT_AGE


def look(settings: Settings, now: datetime) -> Found:
    """Measure the newest snapshot; nothing before the first."""
    found = Found()
    newest = snapshots.newest(settings)
    if newest is None:
        return found
    counts = newest.counts
    found.measure("snapshot_number", newest.number)
    found.measure("positions", counts.positions)
    found.measure("holders", counts.holders)
    found.measure("rejected_records", counts.rejected)
    known = newest.as_known(now)
    looked_at = newest.committed_at if known.looked_at == NEVER else known.looked_at
    age = found.age("snapshot_age_seconds", looked_at, now)
    if age > settings.watch_snapshot_age:
        limit = f"{settings.watch_snapshot_age:g} s (SHARDPOST_WATCH_SNAPSHOT_AGE)"
        text = (
            f"snapshot {newest.number} is of {looked_at:%Y-%m-%d %H:%M:%S} UTC, {age:.0f} s ago:"
            f" expected at most {limit}"
        )
        found.conditions.append(SNAPSHOT_AGE.broken("", text))
    return found
