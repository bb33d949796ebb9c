"""The maintenance of the tables: what is not kept goes, while all else goes on.

In an order in which a run that is broken off at any point has only kept too much: snapshots first,
since nobody is given one whose files may be missing; then, table by table, the files that no kept
snapshot needs, and the entries of the log that no kept version needs. All that goes is older than
whatever a running compaction, a freeze or a reader has or writes, so that no lock keeps them
waiting. Another maintenance is refused.
"""

import logging
from datetime import datetime

from shardpost.delta import snapshots, stored_files
from shardpost.delta.table_errors import table_errors
from shardpost.locks import exclusive
from shardpost.maintenance.model.plan import Plan
from shardpost.maintenance.planning import plan
from shardpost.maintenance.tables import TABLES
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
            _carry_out(settings, found)
    return found


def _planned(settings: Settings, now: datetime) -> Plan:
    with table_errors():
        return plan(settings, now)


def _carry_out(settings: Settings, found: Plan) -> None:
    by_name = {table.name: table for table in TABLES}
    if found.dropped:
        step("thin snapshots")
        snapshots.drop(settings, found.dropped)
    for planned in found.tables:
        table = by_name[planned.name]
        if planned.files:
            step(f"remove files of {table.name}")
            stored_files.remove(settings, table, [file.path for file in planned.files])
        if planned.entries:
            step(f"remove log entries of {table.name}")
            stored_files.remove(settings, table, [file.path for file in planned.entries])
    step("maintained")
