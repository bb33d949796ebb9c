"""`shardpost topics`: the declared topics.

`shardpost topics`: the declared topics.
"""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from shardpost.commands.console import AS_JSON
from shardpost.errors import DONE, NEEDS_ATTENTION, one_line

if TYPE_CHECKING:
    from shardpost.topics.model.finding import Finding


@click.group()
def topics_command() -> None:
    """Create, repair and audit the declared topics."""


@topics_command.command("apply")
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


@topics_command.command("audit")
@AS_JSON
def audit_command(as_json: bool) -> int:
    """Report every departure from what is declared or safe, with what mends it; change nothing.

    Exit code 3 if data is lost or at risk.
    """
    from shardpost.settings import load
    from shardpost.topics.model.finding import exit_code
    from shardpost.watch.audit import audit

    found = audit(load(), datetime.now(UTC))
    if as_json:
        click.echo(json.dumps([one.as_json() for one in found]))
    else:
        click.echo("\n".join(map(_in_words, found)) or "nothing found: all is as declared")
    return exit_code(found)


def _in_words(one: "Finding") -> str:
    where = f"topic {one.topic}: " if one.topic else ""
    lines = [
        f"{one.severity:<5}  {where}{one.setting}: {one.found} ({one.source})",
        f"expected: {one.expected}",
        f"why: {one.why}",
        f"fix: {one.fix}",
        f"more: {one.runbook}",
    ]
    return "\n       ".join(map(one_line, lines))
