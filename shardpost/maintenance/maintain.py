"""The maintenance of the tables: what is not kept goes, while all else goes on.

In an order in which a run that is broken off at any point has only kept too much: snapshots first,
since nobody is given one whose files may be missing; then, table by table, the files that no kept
snapshot needs, and the entries of the log that no kept version needs. All that goes is older than
whatever a running compaction, a freeze or a reader has or writes, so that no lock keeps them
waiting. At last the folders go that nothing names any more, under the lock of rebuilds. Another
maintenance is refused.
"""

import logging
from dataclasses import replace
from datetime import datetime

from shardpost.delta import snapshots, stored_files
from shardpost.delta.table_errors import table_errors
from shardpost.locks import LockedError, exclusive
from shardpost.maintenance.model.plan import Plan, TablePlan
from shardpost.maintenance.planning import plan
from shardpost.rebuilds.drop import remove_unnamed
from shardpost.rebuilds.locked import rebuilding
from shardpost.settings import Settings
from shardpost.steps import step

LOCK = "maintain_tables"

log = logging.getLogger(__name__)


def maintain(settings: Settings, now: datetime, *, dry_run: bool = False) -> Plan:
    """Remove what is not kept at that time; return what that is, with `dry_run` without doing it.

    ShardpostError if the tables cannot be read or written, LockedError beside another maintenance.
    """
    if dry_run:
        return _planned(settings, now)
    with exclusive(settings, LOCK, "the maintenance of the tables"):
        found = _planned(settings, now)
        with table_errors():
            return _carry_out(settings, found)


def _planned(settings: Settings, now: datetime) -> Plan:
    with table_errors():
        return plan(settings, now)


def _carry_out(settings: Settings, found: Plan) -> Plan:
    """Remove what is planned; return what was."""
    if found.dropped:
        step("thin snapshots")
        snapshots.drop(settings, found.dropped)
    for planned in found.tables:
        if planned.files and not planned.is_whole:
            step(f"remove files of {planned.name}")
            stored_files.remove(settings, planned.table, [file.path for file in planned.files])
        if planned.entries and not planned.is_whole:
            step(f"remove log entries of {planned.name}")
            stored_files.remove(settings, planned.table, [file.path for file in planned.entries])
    if any(one.is_whole for one in found.tables):
        found = _remove_folders(settings, found)
    step("maintained")
    return found


def _remove_folders(settings: Settings, found: Plan) -> Plan:
    """Remove the folders that still are unnamed under the lock of rebuilds; return what was done.

    Beside a run of a rebuild none goes.
    """
    step("remove folders")
    try:
        with rebuilding(settings):
            remove_unnamed(settings)
    except LockedError as error:
        why = error.holder
        tables = [TablePlan(t.table, error=why) if t.is_whole else t for t in found.tables]
        return replace(found, tables=tables)
    return found
