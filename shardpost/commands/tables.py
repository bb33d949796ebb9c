"""`shardpost tables list`, `views`, `maintain`; `erase`; and `sql`: one query over all tables."""

import base64
import json
import math
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any

import click

from shardpost.commands import console
from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION, UsageError
from shardpost.installation import opened
from shardpost.wording import in_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from shardpost.maintenance.stored_tables import TableSize


RAW = (
    "the row counts are those of the files that snapshots name, without what came since: query"
    " tables with `shardpost sql`"
)
HEADING = ("table", "rows", "files", "size", "log", "versions", "kept for")


@click.group()
def tables_command() -> None:
    """Look after the tables: print sizes, views for other engines, and remove expired data."""


@tables_command.command("list")
@console.AS_JSON
def list_command() -> None:
    """Print the size of each table, and what prevents its files from being removed.

    `rows` counts the rows in the files of the newest snapshot, before they are merged: a client may
    have several, and a new position none yet (`shardpost sql` queries the merged tables). `files`
    and `size` include what older snapshots need; `versions` are the kept versions.
    """
    from shardpost.maintenance.stored_tables import table_sizes

    found = table_sizes(opened().tables)
    console.print_document(found, lambda: _sizes_text(found))


def _sizes_text(found: "list[TableSize]") -> str:
    if not found:
        return "no table yet: run `shardpost compact`"
    rows = [
        (
            *(size.table, size.rows, size.files, in_bytes(size.bytes)),
            *(in_bytes(size.log_bytes), size.versions, size.kept_for),
        )
        for size in found
    ]
    return f"{console.text_table(HEADING, rows)}\n{RAW}"


@tables_command.command("views")
@click.option(
    "--engine",
    required=True,
    type=click.Choice(["duckdb", "spark", "trino", "polars"]),
    help="The engine that will read the tables.",
)
def views_command(engine: str) -> None:
    """Print views with which other engines read the newest snapshot: SQL, or Python for Polars.

    Without them they read that of the last fold. The views show the newest at any time, until
    rebuilt tables are swapped; then they raise an error: print them again.
    """
    from shardpost import tables
    from shardpost.holders.engine_views import Engine, EngineViews

    snapshot = tables.snapshot()
    click.echo(EngineViews(Engine(engine), opened().tables.root, snapshot).text(), nl=False)


@tables_command.command("maintain")
@click.option(
    "--dry-run", is_flag=True, help="Print what would be removed, and why; change nothing."
)
@console.AS_JSON
def maintain_command(dry_run: bool) -> int:
    """Erase old audiences, close old weeks, remove old dead letters and files that nothing needs.

    SHARDPOST_AUDIENCE_DAYS and SHARDPOST_LEDGER_DAYS say which weeks are old,
    SHARDPOST_LETTER_DAYS which resolved dead letters. With SHARDPOST_HISTORY_DAYS, older records
    that later ones superseded are deleted from the history tables.

    All snapshots of two hours are kept, then the last of each minute for two days, of each hour for
    a week, and of each day for SHARDPOST_SNAPSHOT_DAYS. A snapshot from which a week's audience was
    frozen is kept longer, until that audience is erased. Compactions, e-mails and readers continue
    meanwhile.

    Exit code 3 if something was kept only because it is unknown whether it is still needed, or
    because its week is being mailed.
    """
    from shardpost.maintenance.maintain import maintain_all

    installation = opened()
    found = maintain_all(installation, datetime.now(UTC), dry_run=dry_run)
    console.print_document(
        found.as_json() | {"dry_run": dry_run},
        lambda: "\n".join(found.lines(installation.tables.snapshot_days)),
    )
    for error in found.errors:
        click.echo(error, err=True)
    return NEEDS_ATTENTION if found.errors else DONE


@click.command()
@click.argument("client", type=console.KEY)
@console.NEEDED_WHY
@console.YES
@console.BY
@click.option("--dry-run", is_flag=True, help="Print what would be erased; change nothing.")
@console.AS_JSON
def erase_command(client: str, why: str, by: str, dry_run: bool) -> int:
    """Erase a client: its contact from tables and audiences, its id from the ledger.

    Prints what stays, what is not erased, and what others must do. The ledger keeps a hash of
    the client's id, so that it is not mailed again. Exit code 3: done, and the tables have its
    contact (again); 1: something could not be erased, since it is in use.
    """
    from shardpost.maintenance.erasure import ErasureRequest, erase

    installation, request = opened(), ErasureRequest(client, by, why, datetime.now(UTC))
    if not dry_run:
        console.confirm(
            f"Erase {client}?", lambda: erase(installation, request, dry_run=True).lines()
        )
    result = erase(installation, request, dry_run=dry_run)
    console.print_document(result, result.lines)
    if result.postponed:
        parts = ", ".join(result.postponed)
        click.echo(f"shardpost: not erased: {parts}; run again", err=True)
        return COULD_NOT
    return DONE if dry_run or result.is_complete else NEEDS_ATTENTION


@click.command()
@click.argument("statement", type=console.KEY)
@console.SNAPSHOT
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV (RFC 4180), with a header.")
@console.AS_JSON
def sql_command(statement: str, number: int | None, as_csv: bool) -> None:
    """Query all tables of docs/tables.md in SQL (DataFusion's).

    Such as "SELECT client, positions FROM share_holders". Tables up to rejected_records are as they
    are at one snapshot, all others (dead_letters, audiences, …) as they are now. Nothing is
    written, and no other file is read. Names are as they are written; of binary columns base64 is
    printed. CSV is printed as the rows come, and JSON when all have come: whole, or nothing.
    """
    from shardpost import tables

    if as_csv and console.wants_json():
        raise UsageError("--csv and --json: expected only one of them")
    found = tables.sql(statement, number)
    if as_csv:  # as RFC 4180 has it; null is an empty field, and text is in quotes
        click.echo(_csv_line(found.schema.names), nl=False)
        for rows in _batches(found):
            click.echo("".join(map(_csv_line, rows)), nl=False)
    elif console.wants_json():
        _print_json(found)
    else:
        cells = (map(_cell, row) for rows in _batches(found) for row in rows)
        click.echo(console.text_table(found.schema.names, cells))


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
        raise UsageError(
            f"sql: name columns with AS: there are duplicates of {', '.join(sorted(twice))}"
        )
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
