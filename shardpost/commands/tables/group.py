"""The group of the subcommands of `shardpost tables`."""

import click

from shardpost.commands.tables.list import list_command
from shardpost.commands.tables.maintain import maintain_command


@click.group()
def command() -> None:
    """Look after the tables: their sizes, and removing what is no longer kept."""


for subcommand in (list_command, maintain_command):
    command.add_command(subcommand)
