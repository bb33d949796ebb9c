"""`shardpost rebuild list`."""

import json

import click

from shardpost.commands.options import AS_JSON
from shardpost.commands.rebuild.submitted import in_words
from shardpost.errors import DONE
from shardpost.settings import load


@click.command("list")
@AS_JSON
def list_command(as_json: bool) -> int:
    """Print all rebuilds: which tables, where they stand, and how far behind they are."""
    from shardpost.delta import snapshots
    from shardpost.delta.table_errors import table_errors
    from shardpost.rebuilds import store
    from shardpost.rebuilds.run import described

    settings = load()
    with table_errors():
        newest, every = snapshots.newest(settings), store.list_rebuilds(settings)
    found = [described(one, newest) for one in every] if newest else []
    if as_json:
        click.echo(json.dumps(found))
    else:
        click.echo("\n".join(map(in_words, found)) or "no rebuild yet")
    return DONE
