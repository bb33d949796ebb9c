"""All tables, as the maintenance sees them: their versions, their files, and what keeps them."""

import json
from collections.abc import Collection
from datetime import UTC, datetime

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow import fs

from shardpost.alerts.model.tables import ALERTS
from shardpost.dead_letters.model.letter_format import DEAD_LETTERS
from shardpost.delta import table_log
from shardpost.delta.query import path_of, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshot_retention import GRACE
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.delta.stored_file import StoredFile
from shardpost.delta.table import Table
from shardpost.holders.model.view_tables import VIEW
from shardpost.maintenance.model.log_entries import commits_since
from shardpost.measurements.model.tables import MEASUREMENTS
from shardpost.rebuilds.model.rebuild import REBUILDS
from shardpost.settings import Settings
from shardpost.weekly_email.model.week_tables import (
    AUDIENCES,
    CLOSED_WEEKS,
    FROZEN_WEEKS,
    LEDGER_MARKS,
)

# Tables with commit points of their own.
OTHERS = (
    *(SNAPSHOTS, AUDIENCES, FROZEN_WEEKS, CLOSED_WEEKS, LEDGER_MARKS, DEAD_LETTERS),
    *(REBUILDS, MEASUREMENTS, ALERTS),
)
TABLES = (*VIEW, *OTHERS)


def since_erasure(kept: Collection[Snapshot], now: datetime) -> list[Snapshot]:
    """Return the snapshots whose tables with contacts are kept.

    Of those before the one in which a client was erased they are kept for an hour, for who had
    begun to read them: nobody else may.
    """
    newest = max(kept, key=lambda one: one.number, default=None)
    erased_in = (newest and newest.erased_in) or 0
    since = [one for one in kept if one.number >= erased_in]
    # One of them may be by a clock that was ahead, as that of the erasure is after such a one.
    is_over = any(now - one.committed_at >= GRACE for one in since)
    return since if is_over else [*kept]


def frozen_audiences(settings: Settings) -> dict[str, tuple[int, int]]:
    """Return {week: (its snapshot, its version of `audiences`)} of weeks that have an audience."""
    if table_log.newest_version(settings, FROZEN_WEEKS) is None:
        return {}
    columns = "week, snapshot, audience_version"
    sql = f"SELECT {columns} FROM frozen_weeks WHERE audience_erased_at IS NULL"  # noqa: S608 - constants
    found = rows(settings, sql, {FROZEN_WEEKS: None})
    return {row["week"]: (row["snapshot"], row["audience_version"]) for row in found}


def committed_since(
    settings: Settings, table: Table, files: Collection[StoredFile], at: datetime
) -> set[str]:
    """Return the paths of all files that commits since a time added or removed.

    Who reads an older version than the newest one reads these, besides those of the newest.
    """
    system, root = fs.FileSystem.from_uri(path_of(settings, table))
    found: set[str] = set()
    for entry in commits_since(files, at):
        with system.open_input_file(f"{root}/{entry.path}") as file:
            actions = [json.loads(line) for line in file.read().splitlines()]
        for action in actions:
            found.update(action[kind]["path"] for kind in ("add", "remove") if kind in action)
    return found


def opened(settings: Settings, table: Table) -> DeltaTable | None:
    """Return the newest version of a table; None if there is no such table."""
    try:
        return DeltaTable(path_of(settings, table))
    except TableNotFoundError:
        return None


def newest_commit(files: Collection[StoredFile]) -> datetime:
    """Return when the newest commit of a table was written; the epoch if there is none."""
    times = (entry.at for entry in commits_since(files, datetime.min.replace(tzinfo=UTC)))
    return max(times, default=datetime.fromtimestamp(0, UTC))
