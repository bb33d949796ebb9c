"""Writing the logs of Delta tables through deltalake: Spark writes files, this commits them.

One commit takes some milliseconds and needs no JVM, where Delta's own writer for Spark spends
several Spark jobs on each (docs/decisions/0008). A commit is for exactly one version: it fails if
another writer took that one first, on any file system.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from shardpost.delta import storage
from shardpost.delta.arrow_schema import arrow_rows
from shardpost.delta.storage import Tables
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError

# More than the writers that change a table at the same moment.
MOST_CONFLICTS = 20

log = logging.getLogger(__name__)

T = TypeVar("T")


class VersionExistsError(ShardpostError):
    """Another writer has written the version that was to be written."""


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


def _version_exists(table: Table, version: int) -> VersionExistsError:
    return VersionExistsError(
        f"{table.name}: expected to write version {version}, but it exists: another run writes to"
        " these tables; this one stops and commits nothing"
    )
