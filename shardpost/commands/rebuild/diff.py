"""`shardpost rebuild diff`."""

import json

import click

from shardpost.commands.options import AS_JSON
from shardpost.commands.rebuild.submitted import submitted
from shardpost.errors import DONE, NEEDS_ATTENTION
from shardpost.printable import one_line
from shardpost.settings import load


@click.command("diff")
@AS_JSON
def diff_command(as_json: bool) -> int:
    """Compare the tables beside with those in use, key by key, at the same offsets.

    What came since is added to the tables beside first. Open positions, holders, contacts,
    exchanges and rejected records are equal, changed, or only in one; of what differs, some are
    printed, positions and holders with their records. Of tables that are in use by now, as they
    were when they were swapped. Exit code 3: something differs.
    """
    from shardpost.delta.table_errors import table_errors
    from shardpost.rebuilds.order import Action, Order
    from shardpost.rebuilds.sides import compared, needs_top_up

    settings = load()
    with table_errors():
        if needs_top_up(settings):
            code, result = submitted(Order(Action.TOP_UP, "diff"))
            if result is None:
                return code
        found = compared(settings)
    if as_json:
        click.echo(json.dumps(found.as_json()))
    else:
        for line in found.lines():
            click.echo(one_line(line))
    return DONE if found.is_none else NEEDS_ATTENTION
