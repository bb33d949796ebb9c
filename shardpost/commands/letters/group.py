"""The group of the subcommands of `shardpost letters`."""

import click

from shardpost.commands.letters.discard import discard_command
from shardpost.commands.letters.list import list_command
from shardpost.commands.letters.redrive import redrive_command
from shardpost.commands.letters.show import show_command
from shardpost.commands.letters.sweep import sweep_command


@click.group()
def command() -> None:
    """Look after dead letters: waiting, retried, parked, redriven, discarded."""


for subcommand in (list_command, show_command, sweep_command, redrive_command, discard_command):
    command.add_command(subcommand)
