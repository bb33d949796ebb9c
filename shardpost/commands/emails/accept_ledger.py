"""`shardpost emails accept-ledger`: a person takes a ledger that was lost as it is now."""

from datetime import UTC, datetime

import click

from shardpost.commands.options import BY, Key, who
from shardpost.errors import DONE, UsageError
from shardpost.settings import load
from shardpost.weekly_email.model.week import IsoWeek


@click.command("accept-ledger")
@click.option("--week", required=True, metavar="WEEK", help="ISO week, such as 2026-W47.")
@click.option(
    "--why", required=True, type=Key(), metavar="TEXT", help="Reason; recorded on `decisions`."
)
@BY
def accept_ledger_command(week: str, why: str, by: str | None) -> int:
    """Mail a week whose ledger lost records, by what the ledger says now.

    Whoever it does not know any more is open: the next run mails them, and who had got the e-mail
    gets it twice.
    """
    from shardpost.weekly_email.ledger_decisions import accept_ledger
    from shardpost.weekly_email.ledger_guard import is_whole

    if not why.strip():
        raise UsageError("--why: expected a reason, found none")
    iso_week = IsoWeek.parse(week)
    if is_whole(load(), iso_week):
        click.echo(
            f"{iso_week}: its ledger lost nothing that is known of: there is nothing to accept"
        )
        return DONE
    accept_ledger(load(), iso_week, who(by), why, datetime.now(UTC))
    click.echo(f"{iso_week}: its ledger is taken as it is now; whom it does not know is open")
    return DONE
