"""The size of each table, and what prevents its files from being removed."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from shardpost.delta import storage, table_log
from shardpost.delta.object_store import Tables
from shardpost.delta.query import table_errors
from shardpost.delta.storage import stored_files
from shardpost.delta.table import Table
from shardpost.holders.model.view_tables import VIEW
from shardpost.installation import Installation
from shardpost.maintenance import stored_tables
from shardpost.maintenance.model.needed_files import LOG
from shardpost.rebuilds.drop import unnamed
from shardpost.tables import OTHERS
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.week_tables import AUDIENCES
from shardpost.wording import counted


@dataclass(frozen=True)
class TableSize:
    """`table` is a folder; `files` and `bytes` are all in it but the log, which has `log_bytes`.

    `rows` are those of the newest version that is kept;
    `versions` are so many that are kept, for what `kept_for` says.
    """

    table: str
    files: int
    bytes: int
    log_bytes: int
    rows: int
    versions: int
    kept_for: str

    def as_json(self) -> dict[str, Any]:
        """Return it in the contract's form."""
        return vars(self)


def table_sizes(installation: Installation) -> list[TableSize]:
    """Return the sizes of all tables that are there, in each of their folders.

    ShardpostError if they cannot be read.
    """
    with table_errors():
        views = stored_tables.read(installation.tables)
        folders = [
            folder
            for table in VIEW
            for folder in stored_tables.folders_of(table, views, views.snapshots)
        ]
        sizes = [
            *(
                _size(installation.tables, folder.table, folder.versions, folder.kept_for)
                for folder in folders
            ),
            *(
                _of_audiences(installation.tables)
                if table == AUDIENCES
                else _size(installation.tables, table, None, "its newest version")
                for table in OTHERS
            ),
            *(
                _size(installation.tables, table, (), "nothing: the next maintenance removes it")
                for table in unnamed(installation.tables, views.snapshots, views.rebuilds)
            ),
        ]
        return [size for size in sizes if size is not None]


def _of_audiences(tables: Tables) -> TableSize | None:
    """Return the sizes of the tables of all weeks as those of one."""
    each = FrozenWeeks(tables).audience_tables()
    found = storage.side_by_side(lambda table: _size(tables, table, None, ""), each)
    sizes = [size for size in found if size is not None]
    if not sizes:
        return None
    names = ("files", "bytes", "log_bytes", "rows", "versions")
    sums = {name: sum(getattr(size, name) for size in sizes) for name in names}
    return TableSize(AUDIENCES.name, **sums, kept_for=counted(len(sizes), "frozen week"))


def _size(
    tables: Tables, table: Table, versions: Collection[int] | None, kept_for: str
) -> TableSize | None:
    """Return the size of a table, of which those versions are kept, or the newest alone."""
    newest = table_log.newest_version(tables, table)
    if newest is None:
        return None
    versions = {newest} if versions is None else versions
    files = stored_files(tables, table)
    data = [file.size for file in files if not file.path.startswith(LOG)]
    log = [file.size for file in files if file.path.startswith(LOG)]
    rows = sum(table_log.rows(tables, table, max(versions, default=newest)).values())
    return TableSize(
        *(table.path, len(data), sum(data), sum(log)), *(rows, len(versions), kept_for)
    )
