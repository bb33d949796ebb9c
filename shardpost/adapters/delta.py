"""Reading Delta tables without a JVM: SQL over chosen versions of chosen tables.

Everything goes through deltalake's own query engine (DataFusion), not through its pyarrow dataset: that one
leaves threads behind that abort the interpreter on exit now and then (seen with deltalake 1.6.6, pyarrow 26).
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from shardpost.domain.tables import Table
from shardpost.errors import ShardpostError
from shardpost.settings import Settings


def path_of(settings: Settings, table: Table) -> str:
    """Return where a table is."""
    return f"{settings.tables_root}/{table.name}"


def exists(settings: Settings, table: Table) -> bool:
    """Tell whether a table is there."""
    return DeltaTable.is_deltatable(path_of(settings, table))


def query(settings: Settings, sql: str, versions: Mapping[Table, int | None]) -> pa.Table:
    """Run one SQL query over those tables at those versions (None: the newest), under their own names."""
    builder = QueryBuilder()
    for table, version in versions.items():
        builder = builder.register(table.name, _open(settings, table, version))
    return pa.table(builder.execute(sql))


def rows(
    settings: Settings, sql: str, versions: Mapping[Table, int | None]
) -> list[dict[str, Any]]:
    """Run one SQL query and return its rows as dicts."""
    found: list[dict[str, Any]] = query(settings, sql, versions).to_pylist()
    return found


def _open(settings: Settings, table: Table, version: int | None) -> DeltaTable:
    path = path_of(settings, table)
    try:
        return DeltaTable(path, version=version)
    except TableNotFoundError:
        raise ShardpostError(f"no table {table.name} in {settings.tables_root}") from None
