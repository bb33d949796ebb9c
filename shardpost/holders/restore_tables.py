"""Undoing what a crashed compaction left: tables are restored to the last snapshot's versions.

A run writes all tables before it commits the snapshot that names their versions. A table whose
newest version is another one was written by a run that did not come to its commit.
"""

import logging

from shardpost.delta import table_log
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.settings import Settings

log = logging.getLogger(__name__)


def restore_table(settings: Settings, table: Table, last: Snapshot | None) -> int:
    """Create a table, or restore it to the version of the last snapshot; return its version now."""
    table = last.located(table) if last else table
    committed = last.tables.get(table.name, 0) if last else 0  # a table is created as version 0
    newest = table_log.newest_version(settings, table)
    if newest is None and committed:
        raise ShardpostError(
            f"no table {table.path} in {settings.tables_root}: snapshot"
            f" {last.number if last else 0} is of its version {committed}; restore it from a"
            " backup, or compact into empty tables (another SHARDPOST_TABLES) and an empty"
            " topic share-holders (another SHARDPOST_TOPIC_SHARE_HOLDERS)"
        )
    if newest is None:
        table_log.create(settings, table, settings.snapshot_days)
        return 0
    if newest != committed:
        log.info(
            "%s: restoring version %d: an interrupted run left version %d",
            *(table.path, committed, newest),
        )
        newest = table_log.restore(settings, table, committed)
    return table_log.bring_up_to_date(settings, table, newest)
