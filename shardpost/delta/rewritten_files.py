"""Files of a table that are written anew, as one version of it."""

from collections.abc import Mapping

from shardpost.delta import parquet_files, table_log
from shardpost.delta.parquet_files import Change
from shardpost.delta.table import Table
from shardpost.settings import Settings
from shardpost.steps import step


def commit_files(
    settings: Settings, table: Table, version: int, files: Mapping[str, Change], run: str
) -> int:
    """Write files of a version anew, {path: how its rows change}; return the version after it.

    With it comes a checkpoint, by which the maintenance can remove the log before it: that has
    bounds of what is gone. What an interrupted run left has another name than that of this `run`.
    VersionExistsError if another writer was first.
    """
    folder = f"{version + 1:08d}-{run}"
    step(f"write {table.path}")
    made = [
        parquet_files.rewrite(settings, table, path, f"{folder}/{number}.parquet", change)
        for number, (path, change) in enumerate(files.items())
    ]
    step(f"commit {table.path}")
    version = table_log.commit(settings, table, version, filter(None, made), files)
    step(f"checkpoint {table.path}")
    table_log.write_checkpoint(settings, table, version)
    return version
