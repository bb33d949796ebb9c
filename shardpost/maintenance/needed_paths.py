"""The files that any of some versions of a table has, by one pass over its log.

To open each of the versions says the same, and reads up to ten commits and a checkpoint for each.
"""

import json
from bisect import bisect_right
from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import fs

from shardpost.delta import table_log
from shardpost.delta.query import path_of
from shardpost.delta.stored_file import StoredFile
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.maintenance.model.log_entries import paths_of_entries
from shardpost.maintenance.model.needed_files import NeededFiles
from shardpost.settings import Settings

# A checkpoint is read instead of more commits than that.
COMMITS_IN_PLACE_OF_A_CHECKPOINT = 20


def needed_paths(
    settings: Settings,
    table: Table,
    files: Collection[StoredFile],
    versions: Collection[int],
    newest: DeltaTable | None = None,
) -> set[str]:
    """Return the paths of all files of some versions of a table; `files` are those of its log.

    `newest` is the newest of these versions, where it has been opened.

    ShardpostError, an OSError or an ArrowException if its log has not all of these versions.
    """
    if not versions:
        return set()
    log = _Log(settings, table, files)
    found = NeededFiles(versions)
    at = -1
    for version in sorted(versions):
        at = log.replay(found, at, version)
    live = found.live
    if newest is None or newest.version() != at:
        newest = DeltaTable(path_of(settings, table), version=at)
    if live != {*table_log.sizes_of(newest)}:
        raise ShardpostError(
            f"{table.path}: by its log, version {at} has {len(live)} files, and they are not"
            " those that it has when it is opened"
        )
    return found.end()


class _Log:
    """The commits and checkpoints of a table's log, as they are on the disk."""

    def __init__(self, settings: Settings, table: Table, files: Collection[StoredFile]) -> None:
        self._system, self._root = fs.FileSystem.from_uri(path_of(settings, table))
        self._table = table
        self._commits, self._checkpoints = paths_of_entries(files)
        self._numbers = sorted(self._checkpoints)

    def replay(self, found: NeededFiles, at: int, version: int) -> int:
        """Replay what is between two versions, and return the latter."""
        number = bisect_right(self._numbers, version)
        checkpoint = self._numbers[number - 1] if number else -1
        if checkpoint > at and not self._is_near(at, checkpoint, version):
            found.jump(checkpoint, self._paths_at(checkpoint))
            at = checkpoint
        for number in range(at + 1, version + 1):
            found.commit(number, *self._changed_by(number))
        return version

    def _is_near(self, at: int, checkpoint: int, version: int) -> bool:
        """Tell whether commits are read in place of a checkpoint: few are, and all are there."""
        is_whole = all(one in self._commits for one in range(at + 1, version + 1))
        return checkpoint - at <= COMMITS_IN_PLACE_OF_A_CHECKPOINT and is_whole

    def _paths_at(self, checkpoint: int) -> list[str]:
        with self._opened(self._checkpoints[checkpoint]) as file:
            added = pq.ParquetFile(file).read(columns=["add.path"], use_threads=False)["add"]
        return list(pc.struct_field(added, "path").drop_null().to_pylist())

    def _changed_by(self, version: int) -> tuple[list[str], list[str]]:
        """Return the paths that a commit added, and those that it removed."""
        if version not in self._commits:
            raise ShardpostError(f"the log of {self._table.path} lacks version {version}")
        with self._opened(self._commits[version]) as file:
            text = file.read()
        try:
            lines = text.decode().split("\n")
            actions = [json.loads(line) for line in lines if '"path"' in line]
            return _paths(actions, "add"), _paths(actions, "remove")
        except (ValueError, KeyError, TypeError) as error:
            raise ShardpostError(
                f"the log of {self._table.path} cannot be read at version {version}: {error}"
            ) from None

    def _opened(self, path: str) -> pa.NativeFile:
        return self._system.open_input_file(f"{self._root}/{path}")


def _paths(actions: list[Mapping[str, Mapping[str, str]]], kind: str) -> list[str]:
    return [action[kind]["path"] for action in actions if kind in action]
