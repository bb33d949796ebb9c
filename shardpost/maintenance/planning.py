"""What a maintenance would remove now. Nothing is changed.

The files of a snapshot go an hour after it was offered for the last time: the rule of
snapshot_retention.py is applied as it was an hour ago, and what it kept then contains all that was
offered since.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from deltalake.exceptions import DeltaError

from shardpost.delta import snapshot_retention, snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshot_retention import GRACE
from shardpost.delta.stored_file import StoredFile
from shardpost.delta.stored_files import stored_files
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders.model.tables import VIEW
from shardpost.holders.noted_snapshots import noted_snapshots
from shardpost.maintenance import tables
from shardpost.maintenance.model import data_files
from shardpost.maintenance.model.log_entries import unneeded_entries
from shardpost.maintenance.model.plan import Plan, TablePlan
from shardpost.settings import Settings
from shardpost.weekly_email.model.tables import AUDIENCES

# Of a table with a commit point of its own, what a run wrote and did not commit goes after that.
UNCOMMITTED_FOR = timedelta(days=1)

# A snapshot that was frozen for a week, by week: its number, and the version of `audiences`.
Frozen = dict[str, tuple[int, int]]


def plan(settings: Settings, now: datetime) -> Plan:
    """Return what a maintenance would remove now; ShardpostError if snapshots cannot be read."""
    found = snapshots.list_all(settings)
    frozen = tables.frozen_audiences(settings)
    pinned, unknown = _pinned(settings, found, frozen)
    kept = {one.number for one in found}
    if unknown is None:
        committed = ((one.number, one.committed_at) for one in found)
        by_age = snapshot_retention.kept(committed, now, settings.snapshot_days, GRACE)
        pinned = {number: why for number, why in pinned.items() if number in kept - by_age}
        kept = by_age | set(pinned)
    planned = (
        _planned(settings, table, [one for one in found if one.number in kept], frozen, now)
        for table in tables.TABLES
    )
    return Plan(
        kept=sorted(kept),
        dropped=[one.number for one in found if one.number not in kept],
        pinned=pinned,
        unknown=unknown,
        tables=[one for one in planned if one is not None],
    )


def _pinned(
    settings: Settings, found: Collection[Snapshot], frozen: Frozen
) -> tuple[dict[int, str], str | None]:
    """Return {number: why} of snapshots that are needed, or why that is not known."""
    pinned = {number: f"the audience of {week} is of it" for week, (number, _) in frozen.items()}
    if not found:
        return pinned, None
    try:
        noted = noted_snapshots(settings)
    except ShardpostError as error:
        return {}, f"which ones Kafka names is not known: {error}"
    return dict.fromkeys(noted, "Kafka names it as published or sent") | pinned, None


def _planned(
    settings: Settings, table: Table, kept: list[Snapshot], frozen: Frozen, now: datetime
) -> TablePlan | None:
    """Return what goes of a table; None if there is no such table."""
    opened = tables.opened(settings, table)
    if opened is None:
        return None
    files = stored_files(settings, table)
    newest = max(kept, key=lambda one: one.number, default=None)
    kept = tables.since_erasure(kept, now) if table.contacts else kept
    named = tables.kept_versions(table, kept, {week: v for week, (_, v) in frozen.items()})
    if table in VIEW and (newest is None or table.name not in newest.tables):
        return TablePlan(table.name)  # whatever is there belongs to a run that did not commit yet
    try:
        needed = tables.needed_paths(settings, table, named, opened.version())
        if table in VIEW and newest:
            gone = data_files.below_version(files, needed, newest.tables[table.name])
        else:
            gone = _of_others(settings, table, files, needed, now)
    except (DeltaError, OSError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        return TablePlan(table.name, error=line)
    # From the whole log of audiences, names and addresses are erased (delta/log_statistics.py); it
    # has an entry a week.
    entries = [] if table == AUDIENCES else unneeded_entries(files, named, now - GRACE)
    return TablePlan(table.name, gone, entries)


def _of_others(
    settings: Settings, table: Table, files: list[StoredFile], needed: set[str], now: datetime
) -> list[StoredFile]:
    """By the time of the table's newest commit: a clock that has jumped ahead makes nothing old."""
    newest = min(now, tables.newest_commit(files))
    needed |= tables.committed_since(settings, table, files, newest - GRACE)
    return data_files.before(files, needed, newest - UNCOMMITTED_FOR)
