"""`shardpost topics`: the declared topics."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from shardpost.commands.console import AS_JSON, YES, can_ask, confirm, print_document
from shardpost.errors import DONE, NEEDS_ATTENTION, one_line
from shardpost.installation import opened

if TYPE_CHECKING:
    from shardpost.topics.model.finding import Finding


@click.group()
def topics_command() -> None:
    """Create, repair and audit the declared topics."""


@topics_command.command("apply")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@YES
@AS_JSON
def apply_command(dry_run: bool) -> int:
    """Create missing declared topics, and repair what can be repaired without loss.

    What is not repaired is printed, with the reason and a command: exit code 3.
    """
    from shardpost.topics.creation import apply_topics

    installation = opened()
    if not dry_run and can_ask():
        planned = apply_topics(installation, dry_run=True)
        if any(one.created or one.plan.changes for one in planned):
            confirm("Do that?", lambda: [one.as_text() for one in planned])
    applied = apply_topics(installation, dry_run=dry_run)
    print_document(applied, lambda: "\n".join(one.as_text() for one in applied))
    return NEEDS_ATTENTION if any(one.plan.refusals for one in applied) else DONE


@topics_command.command("groups")
@click.option("--apply", "is_applied", is_flag=True, help="Delete them; else they are only listed.")
@AS_JSON
def groups_command(is_applied: bool) -> int:
    """List the groups that former installations left in Kafka, and delete them with --apply.

    The committed offsets of such a group (`shardpost-rejected-…`) say up to where an installation
    sent its rejected records as dead letters. Never listed: the group of this installation, and
    that of the owner of the topics.
    """
    from shardpost.holders.rejected_letters import former_groups
    from shardpost.kafka.groups import delete_groups

    installation = opened()
    found = former_groups(installation)
    if is_applied:
        delete_groups(installation.kafka, found)
    done = "deleted" if is_applied else "left by a former installation; --apply deletes it"
    print_document(
        {"groups": found, "deleted": is_applied},
        lambda: "\n".join(f"{name}: {done}" for name in found) or "none is left",
    )
    return DONE


@topics_command.command("audit")
@AS_JSON
def audit_command() -> int:
    """Report every departure from what is declared or safe, with its fix; change nothing.

    Exit code 3 if data is lost or at risk.
    """
    from shardpost.topics.model.finding import exit_code
    from shardpost.watch.audit import audit

    found = audit(opened(), datetime.now(UTC))
    print_document(found, lambda: _findings_text(found))
    return exit_code(found)


def _findings_text(found: "Sequence[Finding]") -> str:
    return "\n".join(map(_finding_text, found)) or "nothing found: all is as declared"


def _finding_text(one: "Finding") -> str:
    where = f"topic {one.topic}: " if one.topic else ""
    lines = [
        f"{one.severity:<5}  {where}{one.setting}: {one.found} ({one.source})",
        f"expected: {one.expected}",
        f"why: {one.why}",
        f"fix: {one.fix}",
        f"more: {one.runbook}",
    ]
    return "\n       ".join(map(one_line, lines))
