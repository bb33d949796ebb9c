"""`shardpost explain`: which records put and took a position."""

import json

import click

from shardpost.commands.options import AS_JSON, SNAPSHOT, Key
from shardpost.commands.text_table import text_table
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

    found = tables.explain(client, position, number)
    if not found:
        click.echo(one_line(_no_record(client, position)), err=True)
    if as_json:
        click.echo(json.dumps([transition.as_json() for transition in found]))
    elif found:
        click.echo(text_table(HEADING, [_row(transition) for transition in found]))
    return 0


def _no_record(client: str, position: str | None) -> str:
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
