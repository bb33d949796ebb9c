"""`shardpost tables list`: the size of each table, and what keeps it."""

import json
from typing import TYPE_CHECKING

import click

from shardpost.commands.options import AS_JSON
from shardpost.commands.text_table import text_table
from shardpost.settings import load

if TYPE_CHECKING:
    from shardpost.maintenance.table_sizes import TableSize

HEADING = ("table", "rows", "files", "size", "log", "versions", "kept for")


@click.command("list")
@AS_JSON
def list_command(as_json: bool) -> int:
    """Print the size of each table, and what keeps it.

    `rows` are those of the newest snapshot, `files` and `size` all that is stored, also for older
    ones; `versions` are those that are kept.
    """
    from shardpost.maintenance.table_sizes import table_sizes

    found = table_sizes(load())
    if as_json:
        click.echo(json.dumps([size.as_json() for size in found]))
    else:
        click.echo(_in_words(found))
    return 0


def _in_words(found: "list[TableSize]") -> str:
    from shardpost.maintenance.model.plan import in_bytes

    if not found:
        return "no table yet: run `shardpost compact`"
    rows = [
        (
            *(size.table, str(size.rows), str(size.files), in_bytes(size.bytes)),
            *(in_bytes(size.log_bytes), str(size.versions), size.kept_for),
        )
        for size in found
    ]
    return text_table(HEADING, rows)
