"""`shardpost explain`: which records put and took a position."""

import json

import click

from shardpost.commands.holders import unknown_client
from shardpost.commands.options import AS_JSON, SNAPSHOT, Key
from shardpost.commands.text_table import text_table
from shardpost.delta.snapshot import Snapshot
from shardpost.holders.model.explain import Transition
from shardpost.printable import one_line

HEADING = ("position", "change", "record", "timestamp", "why")


@click.command()
@click.argument("client", type=Key())
@click.argument("position", required=False, type=Key())
@SNAPSHOT
@AS_JSON
def command(client: str, position: str | None, number: int | None, as_json: bool) -> int:
    """Print which records put a position among those that CLIENT holds, and which took it.

    A position of the client that never counted is listed with its latest record, and why.
    """
    from shardpost import tables

    snapshot = tables.snapshot(number)
    found = tables.explain(client, position, snapshot.number)
    if snapshot.history_from is not None:
        at = snapshot.history_from
        said = f"records before {at:%Y-%m-%d %H:%M} UTC that later ones superseded were pruned"
        click.echo(f"{said} (SHARDPOST_HISTORY_DAYS)", err=True)
    if not found:
        click.echo(one_line(_no_record(snapshot, client, position)), err=True)
    if as_json:
        click.echo(json.dumps([transition.as_json() for transition in found]))
    elif found:
        click.echo(text_table(HEADING, [_row(transition) for transition in found]))
    return 0


def _no_record(snapshot: Snapshot, client: str, position: str | None) -> str:
    """Return why there is nothing to explain: what is unknown, or never was the client's."""
    from shardpost.holders.queries import knows_client, knows_position
    from shardpost.settings import load

    if not knows_client(load(), snapshot, client):
        return unknown_client(snapshot, client)
    if position is not None and not knows_position(load(), snapshot, position):
        return f"position {position} is unknown to snapshot {snapshot.number}: no record of it"
    what = "any position" if position is None else f"position {position}"
    return f"no record that was read gave {client} {what}"


def _row(transition: Transition) -> tuple[str, ...]:
    return (
        transition.position,
        str(transition.change),
        str(transition.coordinates),
        transition.timestamp.isoformat(timespec="milliseconds"),
        transition.why,
    )
