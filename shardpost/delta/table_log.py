"""Writing the logs of Delta tables through deltalake: Spark writes files, this commits them.

One commit takes some milliseconds and needs no JVM, where Delta's own writer for Spark spends
several Spark jobs on each (docs/decisions/0008). A commit is for exactly one version: it fails if
another writer took that one first, on any file system.

Small tables that grow row by row, each row with a number of its own, are kept in few files. The row
with the highest number is alone in its file, so that it is found by the files' statistics, and read
and replaced at a cost that does not grow with the table. A change is for one version of the table,
and is made again where another writer was first.
"""

import json
import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from shardpost.delta import parquet_files, storage
from shardpost.delta.arrow_schema import arrow_rows
from shardpost.delta.parquet_files import to_merge
from shardpost.delta.storage import CHECKPOINT_INTERVAL, HIGHEST, RowFile, Tables, row_files
from shardpost.delta.table import LOG_FOLDER, Table
from shardpost.errors import ShardpostError

# More than the writers that change a table at the same moment.
MOST_CONFLICTS = 20

log = logging.getLogger(__name__)

T = TypeVar("T")


class VersionExistsError(ShardpostError):
    """Another writer has written the version that was to be written."""


def retrying(table: Table, write: Callable[[], T], most: int = MOST_CONFLICTS) -> T:
    """Return what `write` returns; retry after conflicts with other writers, a number of times."""
    for _ in range(most):
        try:
            return write()
        except (CommitFailedError, VersionExistsError) as error:
            log.info("%s: trying again after a conflict: %s", table.name, error)
    return write()


def append(tables: Tables, table: Table, make: Callable[[], Any]) -> None:
    """Append the value that `make` returns as a row; retry while other runs are writing."""

    def write() -> None:
        row, found = arrow_rows(table, [make()]), storage.writable(tables, table)
        tables.require_held()
        write_deltalake(found, row, mode="append")

    retrying(table, write)


def restore(tables: Tables, table: Table, version: int) -> int:
    """Restore a table to an older version; return the new version that does so."""
    found = storage.opened(tables, table)
    before = found.version()
    tables.require_held()
    try:
        found.restore(version, commit_properties=CommitProperties(max_commit_retries=0))
    except CommitFailedError:
        raise _version_exists(table, before + 1) from None
    return before + 1


def commit(
    tables: Tables,
    table: Table,
    version: int,
    added: Iterable[AddAction],
    removed: Iterable[str] = (),
    app_transactions: Mapping[str, int] | None = None,
) -> int:
    """Add and remove files as the one version after `version`; return the new version.

    Without files and transactions no version is added. `app_transactions` ({application: version})
    are Delta's application transactions: here, how far something was read. VersionExistsError if
    another writer has written that version, LostLockError if a lock of this process was taken over.
    """
    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [*added]
    actions += [RemoveAction(path, True, now) for path in removed]
    if not actions and not app_transactions:
        return version
    found = storage.opened(tables, table, version)
    transactions = [Transaction(*known) for known in (app_transactions or {}).items()]
    once = CommitProperties(max_commit_retries=0, app_transactions=transactions)
    tables.require_held()
    try:
        found.create_write_transaction(actions, "append", found.schema(), commit_properties=once)
    except CommitFailedError:
        raise _version_exists(table, version + 1) from None
    return version + 1


# The snapshot of which a table is folded: a property of the table, and in the commit's info.
FOLDED_IN = "shardpost.snapshot"


def commit_fold(
    opened: DeltaTable,
    tables: Tables,
    table: Table,
    added: Iterable[AddAction],
    removed: Iterable[str],
    said: Mapping[str, str],
) -> int:
    """Commit as `commit` does, after an opened version, with properties that the info has too.

    No reader may see files or properties without the others, and deltalake 1.6.6 changes either:
    so this writes the entry of the log, as deltalake would.
    """
    known, version, now = opened.metadata(), opened.version() + 1, int(time.time() * 1000)
    metadata = {"id": known.id, "createdTime": known.created_time, "partitionColumns": []}
    metadata |= {"format": {"provider": "parquet", "options": {}}}
    metadata |= {"schemaString": opened.schema().to_json()}
    metadata |= {"configuration": {**known.configuration, **storage.PROPERTIES, **said}}
    info = {"timestamp": now, "operation": "WRITE", **said}
    adds = (
        {"path": one.path, "size": one.size, "partitionValues": {}, "stats": one.stats}
        | {"modificationTime": one.modification_time, "dataChange": True}
        for one in added
    )
    gone = ({"path": path, "deletionTimestamp": now, "dataChange": True} for path in removed)
    actions: list[dict[str, Any]] = [{"commitInfo": info}, {"metaData": metadata}]
    actions += [*({"add": add} for add in adds), *({"remove": one} for one in gone)]
    tables.require_held()
    content = "\n".join(map(json.dumps, actions)).encode()
    if not tables.objects(table.path, LOG_FOLDER).put_if_absent(f"{version:020d}.json", content):
        raise _version_exists(table, version)
    if version % CHECKPOINT_INTERVAL == 0:
        storage.opened(tables, table, version).create_checkpoint()
    return version


def folded_in(opened: DeltaTable) -> int:
    """Return the snapshot of which an opened version is a fold; 0 if it is none."""
    return int(opened.history(1)[0].get(FOLDED_IN, 0))


def _version_exists(table: Table, version: int) -> VersionExistsError:
    return VersionExistsError(
        f"{table.name}: expected to write version {version}, but it exists: another run writes to"
        " these tables; this one stops and commits nothing"
    )


class RowTable:
    """A version of a table of numbered rows, to be changed; `key` is the column of the numbers."""

    def __init__(self, tables: Tables, table: Table, key: str) -> None:
        self._tables, self._table, self._key = tables, table, key
        opened = storage.writable(tables, table)
        self._version = opened.version()
        self.files = row_files(opened, key)

    def newest(self) -> int:
        """Return the highest number; 0 of an empty table."""
        return max((self._highest(file) for file in self.files), default=0)

    def read(self, file: RowFile) -> pa.Table:
        """Return the rows of a file."""
        return parquet_files.read(self._tables, self._table, file.path)

    def insert(self, row: pa.Table) -> None:
        """Add a row with a number above all others; small files of those before it are merged."""
        self._put([row], to_merge(self._table, {file.path: file.size for file in self.files}))

    def replace(self, files: Iterable[RowFile], rows: Sequence[pa.Table]) -> None:
        """Put new files, one for each table of rows, in the place of files."""
        self._put(rows, removed=[file.path for file in files])

    def update(self, number: int, row: pa.Table) -> None:
        """Put a row in the place of that of its number, if that is there."""
        for file in self.files:
            if file.lowest <= number <= file.highest:
                numbered, others = self.split(self.read(file), [number])
                if len(numbered):
                    self.replace([file], [row, others])

    def note(self, transactions: Mapping[str, int]) -> None:
        """Store the versions of Delta's application transactions."""
        commit(self._tables, self._table, self._version, (), (), transactions)

    def put_in_place(self, path: str, made: AddAction | None) -> None:
        """Put a file that is written, or none, in the place of one, if that is still there."""
        if path in {file.path for file in self.files}:
            added = [made] if made else []
            commit(self._tables, self._table, self._version, added, [path])

    def split(self, rows: pa.Table, numbers: Iterable[int]) -> tuple[pa.Table, pa.Table]:
        """Return the rows that have one of these numbers, and the others."""
        import pyarrow.compute as pc  # takes long, and few need it

        chosen = pc.is_in(rows[self._key], pa.array([*numbers], pa.int64()))
        return rows.filter(chosen), rows.filter(pc.invert(chosen))

    def _put(
        self,
        rows: Sequence[pa.Table],
        merged: Sequence[Sequence[str]] = (),
        removed: Sequence[str] = (),
    ) -> None:
        tables, table = self._tables, self._table
        actions: list[AddAction] = []
        try:
            for part in filter(len, rows):
                made = parquet_files.write(tables, table, part, self._name())
                actions.append(made)
            for group in merged:
                made = parquet_files.merge(tables, table, group, self._name())
                actions.append(made)
        except BaseException:
            self._delete(actions)
            raise
        gone = [*removed, *(path for group in merged for path in group)]
        try:
            commit(tables, table, self._version, actions, gone)
        except VersionExistsError:
            self._delete(actions)
            raise

    def _delete(self, actions: Sequence[AddAction]) -> None:
        parquet_files.delete(self._tables, self._table, [action.path for action in actions])

    def _name(self) -> str:
        return f"{self._version + 1:08d}-{uuid.uuid4()}.parquet"

    def _highest(self, file: RowFile) -> int:
        if file.highest != HIGHEST:
            return int(file.highest)
        return max(self.read(file)[self._key].to_pylist(), default=0)


def change(tables: Tables, table: Table, key: str, make: Callable[[RowTable], None]) -> None:
    """Let `make` change a table, created if missing; retry while other writers are first.

    VersionExistsError if they always are.
    """
    retrying(table, lambda: make(RowTable(tables, table, key)))


def remove(tables: Tables, table: Table, key: str, numbers: Collection[int]) -> None:
    """Remove the rows with these numbers, except the highest, while others commit.

    What takes long, writing a file anew, is done once for each; its commit takes a moment, and is
    tried again where another writer was first (VersionExistsError if they always are). A file that
    others have merged meanwhile is looked at in that one.
    """
    first, seen = RowTable(tables, table, key), set[str]()
    gone = {*numbers} - {first.newest()}
    highest = max(gone, default=-1)

    def left() -> set[str]:
        files = RowTable(tables, table, key).files
        return {file.path for file in files if file.lowest <= highest} - seen

    def kept(part: pa.Table) -> pa.Table:
        return first.split(part, gone)[1]

    while paths := left():
        seen |= paths
        for path in paths:
            parts = parquet_files.parts(tables, table, path, [key])
            if any(len(kept(part)) < len(part) for part in parts):
                target = f"thinned-{uuid.uuid4()}.parquet"
                made = parquet_files.rewrite(tables, table, path, target, kept)
                put = partial(RowTable.put_in_place, path=path, made=made)
                change(tables, table, key, put)
