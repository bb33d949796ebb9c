"""`shardpost snapshots`: the committed views."""

import json
from datetime import datetime

import click

from shardpost.commands.options import AS_JSON
from shardpost.commands.text_table import text_table
from shardpost.delta.snapshot import Snapshot

HEADING = ("snapshot", "committed at", "looked at", "records", "positions", "holders", "rejected")


@click.command()
@AS_JSON
def command(as_json: bool) -> int:
    """Print the committed views, oldest first.

    `looked at` is when the inputs were found to have no more than this view; `records` is the sum
    of the end offsets.
    """
    from shardpost import tables

    found = tables.snapshots()
    if as_json:
        click.echo(json.dumps([snapshot.as_json() for snapshot in found]))
    else:
        click.echo(_in_words(found))
    return 0


def _in_words(found: list[Snapshot]) -> str:
    if not found:
        return "no snapshot yet: run `shardpost compact`"
    table = text_table(HEADING, [_row(snapshot) for snapshot in found])
    if (at := found[-1].history_from) is None:
        return table
    return f"{table}\nthe newest has the whole history from {_minute(at)} on"


def _row(snapshot: Snapshot) -> tuple[str, ...]:
    read = sum(sum(ends.values()) for ends in snapshot.end_offsets.values())
    counts = snapshot.counts
    numbers = (read, counts.positions, counts.holders, counts.rejected)
    times = (_minute(snapshot.committed_at), _minute(snapshot.looked_at))
    return (str(snapshot.number), *times, *map(str, numbers))


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
