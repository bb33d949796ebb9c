"""The command `shardpost emails`, and the group of its subcommands."""

from datetime import UTC, datetime

import click

from shardpost.commands.emails.accept_ledger import accept_ledger_command
from shardpost.commands.emails.resolve import resolve_command
from shardpost.commands.emails.state import print_state
from shardpost.commands.emails.status import print_client, print_week
from shardpost.commands.emails.week import find_week
from shardpost.commands.options import AS_JSON, Key
from shardpost.errors import DONE, UsageError
from shardpost.settings import load
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import STATES


@click.group(invoke_without_command=True)
@click.option("--week", metavar="WEEK", help="ISO week, such as 2026-W47. Required.")
@click.option("--client", type=Key(), metavar="CLIENT", help="Only this one: its ledger, in order.")
@click.option(
    "--state",
    type=click.Choice(STATES),
    help="Who is in this state, and why, grouped by reason.",
)
@AS_JSON
@click.pass_context
def command(
    ctx: click.Context, week: str | None, client: str | None, state: str | None, as_json: bool
) -> int:
    """Print the delivery status of a week, by shard; or why a client got an e-mail or did not.

    `open`: in the audience and not mailed yet. `unknown`: it is not known whether the e-mail was
    delivered; during a run these are also the few that are being sent right now. Exit code 3 if
    there are any (`emails resolve` is how a person decides about them), or the ledger lost records.
    """
    if (subcommand := ctx.invoked_subcommand) is not None:
        if as_json or any(given is not None for given in (week, client, state)):
            raise UsageError(f"options of `emails {subcommand}` follow its name")
        return DONE
    if week is None:
        raise click.UsageError("Missing option '--week'.")
    if client is not None and state is not None:
        raise UsageError(
            "--client and --state: expected one of them, found both; --client says the state of one"
        )
    iso_week = IsoWeek.parse(week)
    found = find_week(load(), iso_week, datetime.now(UTC))
    if state is not None:
        return print_state(found, state, as_json=as_json)
    if client is not None:
        return print_client(found, client, as_json=as_json)
    return print_week(found, as_json=as_json)


command.add_command(resolve_command)
command.add_command(accept_ledger_command)
