"""Writing the logs of Delta tables through deltalake: Spark writes files, this commits them.

One commit takes some milliseconds and needs no JVM, where Delta's own writer for Spark spends
several Spark jobs on each (docs/decisions/0008). A commit is for exactly one version: it fails if
another writer took that one first, on any file system.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from shardpost.delta import storage
from shardpost.delta.arrow_schema import arrow_rows, arrow_schema
from shardpost.delta.object_store import Tables
from shardpost.delta.storage import FORM, FORM_PROPERTY, exists, open_table, path_of
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError

# More than the writers that change a table at the same moment.
MOST_CONFLICTS = 20
PROPERTIES = {
    FORM_PROPERTY: str(FORM),
    # Who opens a table reads its newest checkpoint and fewer commits than that.
    "delta.checkpointInterval": "10",
    # Delta by itself deletes commits by their age: snapshots that are kept may name older ones.
    "delta.enableExpiredLogCleanup": "false",
    # For so long, checkpoints list files that were removed, which is of use to nobody here.
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}

log = logging.getLogger(__name__)

T = TypeVar("T")


class VersionExistsError(ShardpostError):
    """Another writer has written the version that was to be written."""


def create(tables: Tables, table: Table, keep_days: int) -> None:
    """Create a table, empty, unless it exists; its old versions are kept for that many days."""
    storage.prepare(tables)
    days = {"delta.logRetentionDuration": f"interval {keep_days} days"}
    try:
        DeltaTable.create(
            path_of(tables, table),
            Schema.from_arrow(arrow_schema(table)),
            mode="ignore",
            configuration={**days, **PROPERTIES},
            storage_options=storage.storage_options(tables),
            raise_if_key_not_exists=False,  # Delta does not know ours
        )
    except CommitFailedError:  # another run is creating it
        if not exists(tables, table):
            raise


def opened(tables: Tables, table: Table, keep_days: int = 1) -> DeltaTable:
    """Return the newest version of a table to be written to, created if there is none.

    By default nobody asks for an old version of it. A column that an earlier release did not have
    is added: in its rows it is null.
    """
    if not exists(tables, table):
        create(tables, table, keep_days)
    found = open_table(tables, table)
    known = {column.name for column in found.schema().fields}
    declared = Schema.from_arrow(arrow_schema(table)).fields
    if missing := [column for column in declared if column.name not in known]:
        found.alter.add_columns(missing)
    return found


def retrying(table: Table, write: Callable[[], T], most: int = MOST_CONFLICTS) -> T:
    """Return what `write` returns; after up to so many conflicts with other writers, try again."""
    for _ in range(most):
        try:
            return write()
        except (CommitFailedError, VersionExistsError) as error:
            log.info("%s: trying again after a conflict: %s", table.name, error)
    return write()


def append(tables: Tables, table: Table, make: Callable[[], Any]) -> None:
    """Append the value that `make` returns as a row, again while other runs are writing."""

    def write() -> None:
        row, found = arrow_rows(table, [make()]), opened(tables, table)
        tables.require_held()
        write_deltalake(found, row, mode="append")

    retrying(table, write)


def newest_version(tables: Tables, table: Table) -> int | None:
    """Return the newest version of a table; None if there is no such table."""
    return open_table(tables, table).version() if exists(tables, table) else None


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


def sizes(tables: Tables, table: Table, version: int | None) -> dict[str, int]:
    """Return {path within the table: bytes} of the files of one version."""
    return sizes_of(storage.opened(tables, table, version))


def sizes_of(found: DeltaTable) -> dict[str, int]:
    """Return {path within the table: bytes} of the files of an opened table."""
    listed = pa.table(found.get_add_actions()).select(["path", "size_bytes"]).to_pylist()
    return {file["path"]: file["size_bytes"] for file in listed}


def rows(tables: Tables, table: Table, version: int) -> dict[str, int]:
    """Return {path within the table: rows} of the files of one version."""
    listed = _files(tables, table, version).select(["path", "num_records"]).to_pylist()
    return {file["path"]: file["num_records"] or 0 for file in listed}


def _files(tables: Tables, table: Table, version: int) -> pa.Table:
    """Return the files of one version with their statistics, such as `max.offset`."""
    opened_ = storage.opened(tables, table, version)
    return pa.table(opened_.get_add_actions(flatten=True))


# A file whose statistics are unknown may have any number.
LOWEST, HIGHEST = 0, 2**63 - 1


@dataclass(frozen=True)
class RowFile:
    """A file: its path within the table, bytes, rows, and the bounds of its rows' numbers."""

    path: str
    size: int
    rows: int
    lowest: int
    highest: int


def row_files(table: DeltaTable, key: str) -> list[RowFile]:
    """Return the files of an opened table, by a column of numbers."""
    actions = table.get_add_actions(flatten=True)
    names, count = set(actions.schema.names), actions.num_rows

    def column(name: str, unknown: int = 0) -> list[Any]:
        if name not in names:
            return [unknown] * count
        # Not pa.table(…): that imports pandas.
        found = pa.chunked_array(actions.column(name)).to_pylist()
        return [unknown if one is None else one for one in found]

    bounds = column(f"min.{key}", LOWEST), column(f"max.{key}", HIGHEST)
    files = zip(*(column(n) for n in ("path", "size_bytes", "num_records")), *bounds, strict=True)
    return [RowFile(*file) for file in files]


def files_after(tables: Tables, table: Table, version: int, snapshot: int) -> dict[str, int]:
    """Return {path: rows} of the files that may have rows of later snapshots, by statistics."""
    files = row_files(storage.opened(tables, table, version), "snapshot")
    return {file.path: file.rows for file in files if file.highest > snapshot}


def files_before(
    tables: Tables, table: Table, version: int, column: str, at: datetime
) -> dict[str, int]:
    """Return {path: bytes} of the files that may have a time before that one, by statistics."""
    actions = _files(tables, table, version)
    paths, sizes = (actions[name].to_pylist() for name in ("path", "size_bytes"))
    if f"min.{column}" not in actions.column_names:
        return dict(zip(paths, sizes, strict=True))
    earliest = actions[f"min.{column}"]
    is_before = pc.less(earliest, pa.scalar(at, earliest.type))
    files = zip(paths, sizes, is_before.to_pylist(), strict=True)
    return {path: size for path, size, before in files if before is not False}


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


def _version_exists(table: Table, version: int) -> VersionExistsError:
    return VersionExistsError(
        f"{table.name}: expected to write version {version}, but it exists: another run writes to"
        " these tables; this one stops and commits nothing"
    )
