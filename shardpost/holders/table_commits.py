"""Undoing what a crashed run left, and committing a snapshot whose files are written anew; no JVM.

A run writes all tables before it commits the snapshot that names their versions. A table whose
newest version is another one was written by a run that did not come to its commit: it is restored
to the last snapshot's version, unless that is a fold of what is committed (folding.py).

A rewritten snapshot has the content of the last one, but for some files. By the protocol of a
compaction, whose lock the caller holds: what an interrupted run left is undone first, then files
and tables are written, and at last the row in `snapshots` makes all of it visible. A run that is
killed has changed nothing that anybody reads.
"""

import logging
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from shardpost import __version__
from shardpost.delta import snapshots, storage, table_log
from shardpost.delta.parquet_files import Change
from shardpost.delta.rewritten_files import commit_files
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import VIEW
from shardpost.logs import step

log = logging.getLogger(__name__)


def restore_table(tables: Tables, table: Table, last: Snapshot | None) -> int:
    """Create a table, or restore it to the version of the last snapshot; return its version now."""
    table = last.located(table) if last else table
    committed = last.tables.get(table.name, 0) if last else 0  # a table is created as version 0
    opened = storage.open_table(tables, table) if storage.exists(tables, table) else None
    if opened is None and committed:
        raise ShardpostError(
            f"no table {table.path} in {tables.root}: snapshot"
            f" {last.number if last else 0} needs its version {committed}; restore it from a"
            " backup, or compact into empty tables (another SHARDPOST_TABLES) and an empty"
            " topic share-holders (another SHARDPOST_TOPIC_SHARE_HOLDERS)"
        )
    if opened is None:
        storage.create(tables, table, tables.snapshot_days)
        return 0
    is_fold = last and table.layer and 0 < table_log.folded_in(opened) <= last.number
    if opened.version() == committed or is_fold:
        return committed
    log.info(
        "%s: restoring version %d: a run that was interrupted or refused left version %d",
        *(table.path, committed, opened.version()),
    )
    return table_log.restore(tables, table, committed)


def restored_tables(tables: Tables, last: Snapshot | None) -> dict[str, int]:
    """Restore all tables to a snapshot, as `restore_table`; return their versions now.

    Every run that commits a snapshot begins with it, behind the lock of the compaction: rows that
    an earlier run left have the number that is given to the next snapshot.
    """
    return {table.name: restore_table(tables, table, last) for table in VIEW}


# {table: {path of a file that is written anew: how its rows change}}
Rewrites = Mapping[Table, Mapping[str, Change]]


def commit_rewritten(
    tables: Tables, last: Snapshot, rewrites: Rewrites, at: datetime, **changes: Any
) -> Snapshot:
    """Write files of the newest snapshot's tables anew; commit, and return, the one after it.

    `changes` are fields of the snapshot. ConflictError, or VersionExistsError, if another run was
    first: then nothing is committed.
    """
    run = str(uuid.uuid4())
    step("restore tables")
    versions = restored_tables(tables, last)
    for table, files in rewrites.items():
        there, version = last.located(table), versions[table.name]
        versions[table.name] = commit_files(tables, there, version, files, run)
    made = replace(
        last,
        number=last.number + 1,
        committed_at=max(at, last.committed_at),
        tables=versions,
        code_version=__version__,
        run=run,
        **changes,
    )
    step("commit snapshot")
    snapshots.commit(tables, made)
    return made


def runs_of(tables: Tables, snapshot: Snapshot) -> dict[int, str]:
    """Return {number: run} of the snapshots in the table, and of that one."""
    return {snapshot.number: snapshot.run} | snapshots.runs(tables)
