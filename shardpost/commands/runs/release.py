"""`shardpost runs release`: free a key by hand."""

from datetime import UTC, datetime

import click

from shardpost.commands.options import BY, Key, who
from shardpost.errors import DONE, UsageError
from shardpost.settings import load


@click.command("release")
@click.argument("key", type=Key())
@click.option("--why", required=True, metavar="TEXT", help="Reason; recorded on `decisions`.")
@BY
def release_command(key: str, why: str, by: str | None) -> int:
    """Free a key whose run never ends.

    Its run in Airflow, if there is one, is left running.
    """
    from shardpost.run_requests.dispatch import release

    if not why.strip():
        raise UsageError("--why: expected a reason, found none")
    command = release(load(), key, who(by), why, datetime.now(UTC))
    click.echo(f"released: {key}; run {command.run_id} of {command.dag} is left running")
    return DONE
