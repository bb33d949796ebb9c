"""`shardpost holders`: who holds stock that counts, from one snapshot."""

import json
from datetime import datetime

import click

from shardpost.commands.options import AS_JSON, SNAPSHOT, Instant, Key


@click.command()
@click.argument("client", required=False, type=Key())
@click.option("--shard", type=int, metavar="N", help="Only clients of that shard.")
@click.option("--as-of", "as_of", type=Instant(), metavar="TIME", help="ISO 8601; no zone is UTC.")
@SNAPSHOT
@AS_JSON
def command(
    client: str | None, shard: int | None, as_of: datetime | None, number: int | None, as_json: bool
) -> int:
    """Print who holds stock that counts: each client with its positions.

    As of a TIME: by the records with a timestamp before it.
    """
    from shardpost import tables

    found = tables.holders(client, shard, as_of, number)
    click.echo(json.dumps(found) if as_json else _in_words(found))
    return 0


def _in_words(found: dict[str, list[str]]) -> str:
    from shardpost.commands.text_table import text_table

    if not found:
        return "nobody"
    return text_table(
        ("client", "positions"), [(client, ", ".join(ids)) for client, ids in found.items()]
    )
