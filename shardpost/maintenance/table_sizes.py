"""The size of each table, and what keeps it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from shardpost.delta import snapshots
from shardpost.delta.query import path_of
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.stored_files import stored_files
from shardpost.delta.table import Table
from shardpost.delta.table_errors import table_errors
from shardpost.holders.model.tables import VIEW
from shardpost.maintenance import tables
from shardpost.maintenance.model.log_entries import LOG
from shardpost.settings import Settings
from shardpost.weekly_email.model.tables import AUDIENCES


@dataclass(frozen=True)
class TableSize:
    """`files` and `bytes` are all in its folder but the log, which has `log_bytes`.

    `rows` are those of the newest snapshot, or of the newest version of a table that is in none;
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


def table_sizes(settings: Settings) -> list[TableSize]:
    """Return the sizes of all tables that are there; ShardpostError if they cannot be read."""
    with table_errors():
        found = snapshots.list_all(settings)
        frozen = tables.frozen_audiences(settings)
        sizes = (
            _size(settings, table, found, {week: one for week, (_, one) in frozen.items()})
            for table in tables.TABLES
        )
        return [size for size in sizes if size is not None]


def _size(
    settings: Settings, table: Table, found: Collection[Snapshot], audiences: dict[str, int]
) -> TableSize | None:
    opened = tables.opened(settings, table)
    if opened is None:
        return None
    newest = opened.version()
    versions = tables.kept_versions(table, found, audiences)
    if table in VIEW and versions:
        newest = max(versions)
    kept_for = "its newest version"
    if table in VIEW:
        kept_for = f"{len(found)} snapshots"
    elif table == AUDIENCES:
        kept_for = f"{len(audiences)} frozen weeks"
    files = stored_files(settings, table)
    data = [file.size for file in files if not file.path.startswith(LOG)]
    log = [file.size for file in files if file.path.startswith(LOG)]
    return TableSize(
        *(table.name, len(data), sum(data), sum(log)),
        *(_rows(settings, table, newest), len({*versions, newest}), kept_for),
    )


def _rows(settings: Settings, table: Table, version: int) -> int:
    actions = DeltaTable(path_of(settings, table), version=version).get_add_actions()
    return sum(filter(None, pa.chunked_array(actions.column("num_records")).to_pylist()))
