"""The rows of a table that have the contact of a client: where they are, and what stays of them.

A row stays, with its key and its coordinates; the columns of `Table.contacts` are emptied.
"""

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.delta import parquet_files, table_log
from shardpost.delta.parquet_files import Change
from shardpost.delta.table import Table
from shardpost.settings import Settings

# Why a record was rejected, or a letter failed, may quote it. There was a reason: this is left.
ERASED = "erased"
_REASONS = ("reason", "error")

# Rows in, a mask of those that are a client's out.
Mask = Callable[[pa.Table], pa.Array]


def files_with_contact(
    settings: Settings, table: Table, version: int, key: tuple[str, str | bytes], own: Mask
) -> dict[str, int]:
    """Return {path: rows} of the files that have the contact of a client.

    `key` is the column that tells the client, and its value there; of the rows that have it, `own`
    are the client's.
    """
    column, value = key
    paths = (
        table_log.files_with(settings, table, version, column, value)
        if isinstance(value, str)
        else [*table_log.sizes(settings, table, version)]
    )
    counts = {path: _count(settings, table, path, column, value, own) for path in paths}
    return {path: count for path, count in counts.items() if count}


def without_contact(table: Table, own: Mask) -> Change:
    """Return what empties the contact in the rows of a client."""
    return partial(_emptied, table, own)


def _count(
    settings: Settings, table: Table, path: str, column: str, value: str | bytes, own: Mask
) -> int:
    """Count the rows of a file; all columns are read only where the client is found."""
    keys = parquet_files.parts(settings, table, path, [column])
    if not any(pc.any(pc.equal(part[column], value)).as_py() for part in keys):
        return 0
    parts = parquet_files.parts(settings, table, path)
    return sum(int(pc.sum(_with_contact(table, own, part)).as_py() or 0) for part in parts)


def _with_contact(table: Table, own: Mask, rows: pa.Table) -> pa.Array:
    """Return the mask of the client's rows in which something is left."""
    found = pa.chunked_array([pa.nulls(rows.num_rows, pa.bool_()).fill_null(False)])
    for name in table.contacts:
        there = pc.is_valid(rows[name])
        if name in _REASONS:
            there = pc.and_(there, pc.fill_null(pc.not_equal(rows[name], ERASED), False))
        found = pc.or_(found, there)
    return pc.and_(found, pc.fill_null(own(rows), False))


def _emptied(table: Table, own: Mask, rows: pa.Table) -> pa.Table:
    mask = _with_contact(table, own, rows)
    for name in table.contacts:
        field = rows.schema.field(name)
        empty = pa.nulls(rows.num_rows, field.type)
        if name in _REASONS:
            erased = pa.scalar(ERASED, field.type)
            empty = pc.if_else(pc.is_valid(rows[name]), erased, pa.scalar(None, field.type))
        changed = _chosen(mask, empty, rows[name])
        rows = rows.set_column(rows.schema.get_field_index(name), field, changed)
    return rows


def _chosen(mask: pa.Array, empty: pa.Array, values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_nested(values.type):  # of lists, if_else knows no arrays
        indices = pc.if_else(mask, pa.scalar(None, pa.int64()), pa.array(range(len(values))))
        return values.take(indices)
    return pc.if_else(mask, empty, values)
