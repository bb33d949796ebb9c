"""`shardpost runs`, with its subcommands."""

import click

from shardpost.commands.runs.dispatch import dispatch_command
from shardpost.commands.runs.list import list_command
from shardpost.commands.runs.release import release_command
from shardpost.commands.runs.request import request_command


@click.group()
def command() -> None:
    """Request runs of DAGs: of many requests under one key, one runs."""


command.add_command(request_command)
command.add_command(list_command)
command.add_command(dispatch_command)
command.add_command(release_command)
