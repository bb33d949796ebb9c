"""The maintenance of the tables: what is not kept goes, while all else goes on.

In an order in which a run that is broken off at any point has only kept too much: snapshots first,
since nobody is given one whose files may be missing; then, table by table, the files that no kept
snapshot needs, and the entries of the log that no kept version needs. On a disk that has no room
for the first, what no snapshot needs as it is goes before. All that goes is older than
whatever a running compaction, a freeze or a reader has or writes, so that no lock keeps them
waiting. At last the folders go that nothing names any more, under the lock of rebuilds. Another
maintenance is refused.
"""

import logging
from dataclasses import replace
from datetime import datetime

from shardpost.delta import snapshots, stored_files
from shardpost.delta.table_errors import table_errors
from shardpost.errors import ShardpostError
from shardpost.locks import LockedError, exclusive
from shardpost.maintenance.model.plan import Plan, TablePlan
from shardpost.maintenance.planning import plan
from shardpost.rebuilds.drop import remove_unnamed
from shardpost.rebuilds.store import rebuilding
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
    with table_errors(), exclusive(settings, LOCK, "the maintenance of the tables"):
        found = _planned(settings, now)
        return _carry_out(settings, _thinned(settings, found, now) if found.dropped else found)


def _planned(settings: Settings, now: datetime, *, thin: bool = True) -> Plan:
    with table_errors():
        return plan(settings, now, thin=thin)


def _thinned(settings: Settings, found: Plan, now: datetime) -> Plan:
    """Remove the rows that are planned to go; return what may go then.

    That writes a file. On a full disk there may be room for it when all has gone that no row needs;
    if there is none even then, no row goes, and that was all.
    """
    step("thin snapshots")
    try:
        _drop(settings, found)
    except ShardpostError as error:
        log.warning("%s: trying again without what no snapshot needs", error)
        without = _planned(settings, now, thin=False)
        _remove_files(settings, without)
        try:
            _drop(settings, found)
        except ShardpostError as again:
            return replace(without, unknown=str(again))
    return found


def _drop(settings: Settings, found: Plan) -> None:
    with table_errors():
        snapshots.drop(settings, found.dropped)


def _carry_out(settings: Settings, found: Plan) -> Plan:
    """Remove what is planned, but rows; return what was."""
    _remove_files(settings, found)
    if any(one.is_whole for one in found.tables):
        found = _remove_folders(settings, found)
    step("maintained")
    return found


def _remove_files(settings: Settings, found: Plan) -> None:
    for planned in found.tables:
        if planned.files and not planned.is_whole:
            step(f"remove files of {planned.name}")
            stored_files.remove(settings, planned.table, [file.path for file in planned.files])
        if planned.entries and not planned.is_whole:
            step(f"remove log entries of {planned.name}")
            stored_files.remove(settings, planned.table, [file.path for file in planned.entries])


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
