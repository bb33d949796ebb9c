"""A snapshot with the content of the last one, but for files that are written anew; no JVM.

By the protocol of a compaction, whose lock the caller holds: what an interrupted run left is undone
first, then files and tables are written, and at last the row in `snapshots` makes all of it
visible. A run that is killed has changed nothing that anybody reads.
"""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from shardpost import __version__
from shardpost.delta import snapshots
from shardpost.delta.parquet_files import Change
from shardpost.delta.rewritten_files import commit_files
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.holders.model.tables import VIEW
from shardpost.holders.restore_tables import restore_table
from shardpost.settings import Settings
from shardpost.steps import step

# {table: {path of a file that is written anew: how its rows change}}
Rewrites = Mapping[Table, Mapping[str, Change]]


def commit_rewritten(
    settings: Settings, last: Snapshot, rewrites: Rewrites, at: datetime, **changes: Any
) -> Snapshot:
    """Write files of the newest snapshot's tables anew; commit, and return, the one after it.

    `changes` are fields of the snapshot. ConflictError, or VersionExistsError, if another run was
    first: then nothing is committed.
    """
    run = str(uuid.uuid4())
    step("restore tables")
    versions = {table.name: restore_table(settings, table, last) for table in VIEW}
    for table, files in rewrites.items():
        there, version = last.located(table), versions[table.name]
        versions[table.name] = commit_files(settings, there, version, files, run)
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
    snapshots.commit(settings, made)
    return made
