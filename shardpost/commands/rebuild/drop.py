"""`shardpost rebuild drop`."""

import json

import click

from shardpost.commands.options import AS_JSON, BY, who
from shardpost.commands.rebuild.swap import WHY
from shardpost.errors import DONE
from shardpost.settings import load


@click.command("drop")
@WHY
@BY
@AS_JSON
def drop_command(why: str, by: str | None, as_json: bool) -> int:
    """Give up the tables beside those in use.

    Of a rebuild that was not swapped that are the new tables; of one that is in use the old ones,
    and there is no rollback any more. What kept snapshots name stays until the maintenance of the
    tables thins them.
    """
    from shardpost.delta.table_errors import table_errors
    from shardpost.rebuilds.drop import give_up

    with table_errors():
        rebuild, removed = give_up(load(), who(by), why)
    if as_json:
        click.echo(json.dumps({"rebuild": rebuild.number, "removed": removed}))
    else:
        gone = ", ".join(removed) or "what snapshots name stays until they are thinned"
        click.echo(f"rebuild {rebuild.number} is dropped: {gone}")
    return DONE
