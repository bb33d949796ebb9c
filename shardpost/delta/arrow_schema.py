"""The Arrow schema of a table, and rows in it."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from shardpost.delta.table import Array, Columns, Table, to_row

_TYPES = {
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}


def arrow_schema(table: Table) -> pa.Schema:
    """Return the schema of a table; KeyError for a type that `_TYPES` has not."""
    return schema_of(table.columns)


def schema_of(columns: Columns) -> pa.Schema:
    """Return the schema of columns, which may all be null."""
    return pa.schema([pa.field(name, _type(type_)) for name, type_ in columns])


def arrow_rows(table: Table, values: Iterable[Any]) -> pa.Table:
    """Return values of the dataclass that declares a table as its rows."""
    return pa.Table.from_pylist([*map(to_row, values)], arrow_schema(table))


def rows_of(table: Table, found: pa.Table) -> pa.Table:
    """Return what was read or made as rows of a table, with its columns; what it lacks is null."""
    return in_form(arrow_schema(table), found)


def in_form(schema: pa.Schema, found: pa.Table) -> pa.Table:
    """Return the columns of a schema, in its order and types; those that are not there are null."""
    columns = [
        found[field.name].cast(field.type)
        if field.name in found.column_names
        else pa.nulls(found.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _type(type_: str | Array) -> pa.DataType:
    if isinstance(type_, str):
        return _TYPES[type_]
    element = type_.element
    return pa.list_(
        _TYPES[element] if isinstance(element, str) else pa.struct([*schema_of(element)])
    )
