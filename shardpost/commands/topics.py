"""`shardpost topics`: the declared topics."""

import json

import click

from shardpost.commands.options import AS_JSON


@click.group()
def command() -> None:
    """Create the declared topics."""


@command.command("apply")
@AS_JSON
def apply_command(as_json: bool) -> int:
    """Create the declared topics that are missing.

    Existing topics are not changed.
    """
    from shardpost.settings import load
    from shardpost.topics.creation import apply_topics

    applied = apply_topics(load())
    if as_json:
        click.echo(json.dumps([one.as_json() for one in applied]))
    else:
        click.echo("\n".join(one.as_text() for one in applied))
    return 0
