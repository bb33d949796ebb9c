"""The runs that made the snapshots of the tables."""

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.settings import Settings


def runs_of(settings: Settings, snapshot: Snapshot) -> dict[int, str]:
    """Return {number: run} of the snapshots in the table, and of that one."""
    return {snapshot.number: snapshot.run} | snapshots.runs(settings)
