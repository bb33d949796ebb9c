"""The contact of a client in tables beside those in use, and how it leaves them; no JVM.

Otherwise a swap or a rollback would bring it back. The caller holds the lock of rebuilds.
"""

import uuid
from collections.abc import Collection
from dataclasses import replace

from shardpost.delta import snapshots
from shardpost.delta.rewritten_files import commit_files
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders.erasure import find_contact
from shardpost.holders.model.view_tables import OF_CONTACTS
from shardpost.holders.table_commits import restore_table
from shardpost.rebuilds import store
from shardpost.rebuilds.model.rebuild import Rebuild, State
from shardpost.settings import Settings
from shardpost.steps import step


def rows_with_contact(settings: Settings, client: str) -> dict[str, int]:
    """Return {folder: rows} of tables beside those in use that have the contact."""
    beside = _beside(settings)
    return find_contact(settings, beside[1], client, _own(beside[0]))[1] if beside else {}


def erase_contact(settings: Settings, client: str) -> dict[str, int]:
    """Store the tables beside those in use without the contact; return the rows that had it.

    ShardpostError while they are built: that goes on by the files of its snapshot, as they are.
    """
    found = _beside(settings)
    if found is None:
        return {}
    rebuild, beside = found
    own = _own(rebuild)
    if own and rebuild.state is State.BUILDING:
        raise ShardpostError(
            f"rebuild {rebuild.number} is being built of snapshot {rebuild.pinned}, which may have"
            " its contact: go on with it by `shardpost rebuild start` and the same options, or"
            " `shardpost rebuild drop`; then erase again"
        )
    rewrites, counts = find_contact(settings, beside, client, own)
    if not rewrites:
        return {}
    versions, run = dict(beside.tables), str(uuid.uuid4())
    for table, files in rewrites.items():
        version = restore_table(settings, table, beside)
        there = beside.located(table)
        versions[table.name] = commit_files(settings, there, version, files, run)
    made = replace(beside, tables=versions, erased_in=beside.number)
    step("commit tables beside")
    is_former = beside is rebuild.former
    store.update(
        settings, replace(rebuild, former=made) if is_former else replace(rebuild, candidate=made)
    )
    return counts


def _beside(settings: Settings) -> tuple[Rebuild, Snapshot] | None:
    rebuild, newest = store.current(settings), snapshots.newest(settings)
    beside = rebuild.beside(newest) if rebuild and newest else None
    return (rebuild, beside) if rebuild and beside else None


def _own(rebuild: Rebuild) -> Collection[Table]:
    """Return its tables with contacts; those that it shares are erased with those in use."""
    return [table for table in OF_CONTACTS if table.name in rebuild.tables]
