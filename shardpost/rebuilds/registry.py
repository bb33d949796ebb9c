"""The rows of the table `rebuilds`, and the locks of those who write its tables; no JVM.

A row is the commit point of tables that are beside those in use: a file that no row and no snapshot
names was written by a run that was killed. One run at a time writes tables beside those in use, and
anybody may compare them.
"""

from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from shardpost.delta import snapshots, table_log
from shardpost.delta.arrow_schema import arrow_rows
from shardpost.delta.query import select
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.errors import ShardpostError
from shardpost.holders import plausibility
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.locks.locks import exclusive
from shardpost.locks.shared_files import Files
from shardpost.rebuilds.comparison import compare
from shardpost.rebuilds.model.difference import Difference
from shardpost.rebuilds.model.rebuild import REBUILDS, Rebuild, Standing


def rebuilding(files: Files, *, wait: float = 0) -> AbstractContextManager[None]:
    """Hold the lock of rebuilds; LockedError beside another run that writes their tables.

    A compaction holds it for the seconds of a top-up: `wait` for that.
    """
    return exclusive(files, "rebuild", "a run of the rebuild", wait=wait)


NUMBER = "rebuild"


def list_rebuilds(tables: Tables) -> list[Rebuild]:
    """Return all rebuilds, the oldest first."""
    return select(tables, REBUILDS, Rebuild, "ORDER BY rebuild")


def current(tables: Tables) -> Rebuild | None:
    """Return the rebuild whose tables are there, in use or beside; None if there is none."""
    return next((rebuild for rebuild in reversed(list_rebuilds(tables)) if rebuild.is_open), None)


def require_current(tables: Tables, number: int | None = None) -> Rebuild:
    """Return the rebuild whose tables are there; ShardpostError for none, or another number."""
    if (rebuild := current(tables)) is None:
        raise ShardpostError("there is no rebuild: start one with `shardpost rebuild start`")
    if number not in (None, rebuild.number):
        raise ShardpostError(
            f"expected rebuild {number}, found {rebuild.number}: rebuild {number} was dropped"
        )
    return rebuild


def get(tables: Tables, number: int) -> Rebuild:
    """Return the rebuild of a number; ShardpostError if there is none."""
    found = next((rebuild for rebuild in list_rebuilds(tables) if rebuild.number == number), None)
    if found is None:
        raise ShardpostError(f"there is no rebuild {number}: `shardpost rebuild list` lists them")
    return found


def list_described(tables: Tables) -> list[dict[str, Any]]:
    """Return all rebuilds, the oldest first, each as `described`."""
    newest = snapshots.newest(tables)
    return [described(one, newest) for one in list_rebuilds(tables)] if newest else []


def described(rebuild: Rebuild, newest: Snapshot) -> dict[str, Any]:
    """Return a rebuild as a JSON object, with its current state.

    `snapshot` is the one whose records the tables beside have, `behind` how many came since.
    """
    standing = rebuild.standing(newest)
    is_gone = standing in (Standing.BUILDING, Standing.DROPPED, Standing.FINAL)
    standby = None if is_gone else rebuild.standby(newest)
    return {
        "rebuild": rebuild.number,
        "state": str(standing),
        **vars(rebuild.rule),
        "source": str(rebuild.source),
        "tables": rebuild.folders,
        "started_at": rebuild.started_at.isoformat(),
        "started_by": rebuild.started_by,
        "pinned": rebuild.pinned,
        "snapshot": standby.number if standby else None,
        "behind": newest.number - standby.number if standby else None,
        "progress": vars(rebuild.progress),
        "missing": list(rebuild.missing),
    }


def needs_top_up(tables: Tables) -> bool:
    """Tell whether new tables that are not in use lack later records."""
    newest, rebuild = snapshots.current(tables), require_current(tables)
    if rebuild.standing(newest) not in (Standing.READY, Standing.ROLLED_BACK):
        return False
    return rebuild.candidate.number != newest.number


def compare_open(
    tables: Tables, kafka: Kafka, now: datetime, number: int | None = None
) -> Difference:
    """Compare the tables that the open rebuild, of that number, has with those before it.

    At the newest snapshot that both have: of tables that are in use, the last one before they were.
    ShardpostError while they are being built.
    """
    newest, rebuild = snapshots.current(tables), require_current(tables, number)
    standing = rebuild.standing(newest)
    if standing is Standing.BUILDING:
        raise ShardpostError(
            f"rebuild {rebuild.number} is {standing} ({rebuild.progress.summary()}): continue it"
            " with `shardpost rebuild start` and the same options"
        )

    candidate, standby = rebuild.candidate, rebuild.require_standby(newest)
    if standing is Standing.IN_USE and candidate.number == standby.number:
        # Its tables with contacts are not read as they were before a client was erased.
        in_use = replace(candidate, erased_in=newest.erased_in)
    elif standby.number == newest.number:
        in_use = newest
    else:
        in_use = snapshots.get(tables, standby.number, now=now)
    views = (standby, in_use) if standing is Standing.IN_USE else (in_use, standby)
    return compare(tables, kafka, *views)


def require_rule(installation: Installation, last: Snapshot) -> None:
    """Refuse settings by which others would hold than at the last snapshot; UsageError.

    While tables are beside those in use, another one comes with their swap.
    """
    if last.rule_now(installation.settings.rule) != last.rule:
        rebuild = current(installation.tables)
        if rebuild is None or rebuild.standing(last) is Standing.IN_USE:
            plausibility.require_rule(installation.tables, last, installation.settings.rule)


def insert(tables: Tables, rebuild: Rebuild) -> None:
    """Add a rebuild with a number above all others; ShardpostError if another run was first."""

    def make(table: table_log.RowTable) -> None:
        if table.newest() >= rebuild.number:
            raise ShardpostError(f"rebuild {rebuild.number} was started by another run: run again")
        table.insert(arrow_rows(REBUILDS, [rebuild]))

    table_log.change(tables, REBUILDS, NUMBER, make)


def update(tables: Tables, rebuild: Rebuild) -> Rebuild:
    """Store the current state of a rebuild, and return it."""
    made = replace(rebuild, changed_at=datetime.now(UTC))
    row = arrow_rows(REBUILDS, [made])
    table_log.change(tables, REBUILDS, NUMBER, lambda table: table.update(made.number, row))
    return made
