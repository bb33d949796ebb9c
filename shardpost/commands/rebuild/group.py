"""The group of the subcommands of `shardpost rebuild`."""

import click

from shardpost.commands.rebuild.diff import diff_command
from shardpost.commands.rebuild.drop import drop_command
from shardpost.commands.rebuild.list import list_command
from shardpost.commands.rebuild.start import start_command
from shardpost.commands.rebuild.swap import rollback_command, swap_command


@click.group()
def command() -> None:
    """Compute the tables anew beside those in use, compare, swap, and roll back.

    Compactions, e-mails and readers go on meanwhile, on the tables in use.
    """


SUBCOMMANDS = (
    *(start_command, diff_command, swap_command, rollback_command),
    *(drop_command, list_command),
)

for subcommand in SUBCOMMANDS:
    command.add_command(subcommand)
