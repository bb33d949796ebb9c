"""`shardpost topics`: the declared topics."""

import json

import click

from shardpost.commands.options import AS_JSON
from shardpost.errors import DONE, NEEDS_ATTENTION


@click.group()
def command() -> None:
    """Create and repair the declared topics."""


@command.command("apply")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@AS_JSON
def apply_command(dry_run: bool, as_json: bool) -> int:
    """Create the declared topics that are missing, and repair what can be repaired without a loss.

    What is not as declared and is left alone is said, with the reason and a command: exit code 3.
    """
    from shardpost.settings import load
    from shardpost.topics.creation import apply_topics

    applied = apply_topics(load(), dry_run=dry_run)
    if as_json:
        click.echo(json.dumps([one.as_json() for one in applied]))
    else:
        click.echo("\n".join(one.as_text() for one in applied))
    return NEEDS_ATTENTION if any(one.plan.refusals for one in applied) else DONE
