"""`shardpost emails resolve`: a person decides deliveries that are unknown."""

import json
from datetime import UTC, datetime

import click

from shardpost.commands.options import AS_JSON, BY, Key, who
from shardpost.errors import DONE, UsageError
from shardpost.printable import one_line
from shardpost.settings import load
from shardpost.weekly_email.model.resolution import Outcome, Resolution
from shardpost.weekly_email.model.week import IsoWeek


@click.command("resolve")
@click.option("--week", required=True, metavar="WEEK", help="ISO week, such as 2026-W47.")
@click.option(
    "--client", "named", multiple=True, type=Key(), metavar="CLIENT", help="Whose; repeatable."
)
@click.argument("more", nargs=-1, type=Key(), metavar="[CLIENT]...")
@click.option(
    "--as",
    "outcome",
    required=True,
    type=click.Choice([str(outcome) for outcome in Outcome]),
    help="`sent`: it was delivered. `open`: it was not; the next run mails it.",
)
@click.option(
    "--why", required=True, type=Key(), metavar="TEXT", help="Reason; recorded on `decisions`."
)
@BY
@AS_JSON
def resolve_command(
    week: str,
    named: tuple[str, ...],
    more: tuple[str, ...],
    outcome: str,
    why: str,
    by: str | None,
    as_json: bool,
) -> int:
    """Decide whether e-mails whose delivery is unknown were delivered.

    All clients or none: if the delivery to one of them is not unknown, nothing is changed. Refused
    while a run mails one of their shards.
    """
    from shardpost.weekly_email.ledger_decisions import resolve

    clients = tuple(dict.fromkeys((*named, *more)))
    if not clients:
        raise UsageError("--client: expected at least one client, found none")
    if not why.strip():
        raise UsageError("--why: expected a reason, found none")
    decided = Resolution(
        IsoWeek.parse(week), clients, Outcome(outcome), who(by), why, datetime.now(UTC)
    )
    shards = resolve(load(), decided)
    if as_json:
        rows = [{"client": client, "shard": shards[client], "state": outcome} for client in clients]
        click.echo(json.dumps({"week": str(decided.week), "resolved": rows}))
    else:
        for client in clients:
            click.echo(one_line(f"{client}: {outcome} (was unknown), shard {shards[client]}"))
    return DONE
