"""`shardpost sql`: one query over all tables at a snapshot, as text, JSON or CSV."""

import base64
import json
import math
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any

import click

from shardpost.commands.console import AS_JSON, KEY, SNAPSHOT, text_table, wants_json
from shardpost.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa


@click.command()
@click.argument("statement", type=KEY)
@SNAPSHOT
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV (RFC 4180), with a header.")
@AS_JSON
def sql_command(statement: str, number: int | None, as_csv: bool) -> int:
    """Query all tables of docs/tables.md in SQL (DataFusion's).

    Such as "SELECT client, positions FROM share_holders". Tables up to rejected_records are as they
    are at one snapshot, all others (dead_letters, audiences, …) as they are now. Nothing is
    written, and no other file is read. Names are as they are written; of binary columns base64 is
    printed. CSV is printed as the rows come, and JSON when all have come: whole, or nothing.
    """
    from shardpost import tables

    if as_csv and wants_json():
        raise UsageError("--csv and --json: expected one of them")
    found = tables.sql(statement, number)
    if as_csv:  # as RFC 4180 has it; null is an empty field, and text is in quotes
        click.echo(_csv_line(found.schema.names), nl=False)
        for rows in _batches(found):
            click.echo("".join(map(_csv_line, rows)), nl=False)
    elif wants_json():
        _print_json(found)
    else:
        cells = (map(_cell, row) for rows in _batches(found) for row in rows)
        click.echo(text_table(found.schema.names, [[*row] for row in cells]))
    return 0


def _batches(found: "pa.RecordBatchReader") -> Iterator[list[tuple[Any, ...]]]:
    """Yield some rows after the other, as they come."""
    from shardpost.delta.query import python_values

    for batch in found:
        columns = (map(_plain, python_values(column)) for column in batch.columns)
        yield [*zip(*columns, strict=True)]


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; null for a number that JSON has not."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    return value.isoformat() if isinstance(value, date | datetime | time) else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_MOST_IN_MEMORY = 1 << 20  # characters of a document


def _print_json(found: "pa.RecordBatchReader") -> None:
    names, between = found.schema.names, ""
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"sql: name columns by AS: there are two of {', '.join(sorted(twice))}")
    with SpooledTemporaryFile(_MOST_IN_MEMORY, "w+") as document:
        document.write("[")
        for rows in filter(None, _batches(found)):
            documents = (json.dumps(dict(zip(names, row, strict=True))) for row in rows)
            document.write(between + ", ".join(documents))
            between = ", "
        document.write("]\n")
        document.seek(0)
        while part := document.read(_MOST_IN_MEMORY):
            click.echo(part, nl=False)


def _csv_line(values: Iterable[Any]) -> str:
    return ",".join(map(_csv_field, values)) + "\r\n"


def _csv_field(value: Any) -> str:
    text = _cell(value)
    if isinstance(value, str | list | dict):
        return '"' + text.replace('"', '""') + '"'
    return text
