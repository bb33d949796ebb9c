"""`shardpost holders`: who holds stock that counts, from one snapshot."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from shardpost.commands.options import AS_JSON, SNAPSHOT, Instant, Key
from shardpost.printable import one_line

if TYPE_CHECKING:
    from shardpost.delta.snapshot import Snapshot


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

    As of a TIME: by the records with a timestamp before it. Of a client that no record names, and
    of a time that the snapshot does not cover, standard error says so.
    """
    from shardpost import tables

    snapshot = tables.snapshot(number)
    found = tables.holders(client, shard, as_of, snapshot.number)
    known = snapshot.as_known(datetime.now(UTC))
    if as_of is not None and as_of > known.looked_at:
        click.echo(_not_covered(known), err=True)
    unknown = None if client is None or found else _why_none(snapshot, client, shard)
    if unknown is not None:
        click.echo(one_line(unknown), err=True)
    if as_json:
        click.echo(json.dumps(found))
    elif unknown is None:
        click.echo(_in_words(found, client))
    return 0


def _not_covered(snapshot: "Snapshot") -> str:
    from shardpost.delta.snapshot import NEVER

    if snapshot.looked_at == NEVER:
        return (
            f"up to when snapshot {snapshot.number} has all records is not known: later ones may"
            " not be in this answer; `shardpost compact` says why"
        )
    return (
        f"snapshot {snapshot.number} has what the topics held at"
        f" {snapshot.looked_at:%Y-%m-%d %H:%M:%S} UTC: later records are not in this answer;"
        " `shardpost compact` reads them"
    )


def _why_none(snapshot: "Snapshot", client: str, shard: int | None) -> str | None:
    """Return why a client is not in the answer, if it is not that it holds nothing."""
    from shardpost.holders.queries import knows_client
    from shardpost.kafka.partitioning import partition_of
    from shardpost.settings import load

    if not knows_client(load(), snapshot, client):
        return unknown_client(snapshot, client)
    if shard is not None and (own := partition_of(client, snapshot.shards)) != shard:
        return f"{client} is in shard {own}, not in {shard}"
    return None


def unknown_client(snapshot: "Snapshot", client: str) -> str:
    """Return that no record that a snapshot has names a client."""
    number = snapshot.number
    return f"client {client} is unknown to snapshot {number}: no record of it or its positions"


def _in_words(found: dict[str, list[str]], client: str | None) -> str:
    from shardpost.commands.text_table import text_table

    if not found:
        return "nobody" if client is None else one_line(f"{client} holds none")
    return text_table(
        ("client", "positions"), [(client, ", ".join(ids)) for client, ids in found.items()]
    )
