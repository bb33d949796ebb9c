"""`shardpost erase`: one client's data erased, on record."""

import json
from datetime import UTC, datetime

import click

from shardpost.commands.options import AS_JSON, BY, Key, who
from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION, UsageError
from shardpost.printable import one_line
from shardpost.settings import load


@click.command()
@click.argument("client", type=Key())
@click.option("--why", required=True, metavar="TEXT", help="Reason; recorded on `decisions`.")
@BY
@click.option("--dry-run", is_flag=True, help="Print what would be erased; change nothing.")
@AS_JSON
def command(client: str, why: str, by: str | None, dry_run: bool, as_json: bool) -> int:
    """Erase a client: its contact from tables and audiences, its id from the ledger.

    What stays, what is not erased, and what others must do is printed. The ledger keeps under a
    hash of the client that it was mailed, so that it is not mailed again. Exit code 3: done, and
    the tables have its contact (again); 1: something could not be erased, since it is in use.
    """
    from shardpost.erasure import ErasureRequest, erase

    if not why.strip():
        raise UsageError("--why: expected a reason, found none")
    if not client:
        raise UsageError("CLIENT: expected a client id, found none")
    request = ErasureRequest(client, who(by), why, datetime.now(UTC))
    result = erase(load(), request, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps(result.as_json()))
    else:
        for line in result.lines():
            click.echo(one_line(line))
    if result.postponed:
        parts = ", ".join(result.postponed)
        click.echo(f"shardpost: not erased: {parts}; run again", err=True)
        return COULD_NOT
    return DONE if dry_run or result.is_complete else NEEDS_ATTENTION
