"""`shardpost tables maintain`: what the DAG maintain_tables does, by hand."""

import json
from datetime import UTC, datetime

import click

from shardpost.commands.options import AS_JSON
from shardpost.errors import DONE, NEEDS_ATTENTION
from shardpost.settings import load


@click.command("maintain")
@click.option("--dry-run", is_flag=True, help="Print what would go, and why; change nothing.")
@AS_JSON
def maintain_command(dry_run: bool, as_json: bool) -> int:
    """Erase old audiences, close old weeks, remove old letters and files that nothing needs.

    SHARDPOST_AUDIENCE_DAYS and SHARDPOST_LEDGER_DAYS say which weeks are old,
    SHARDPOST_LETTER_DAYS which letters, of those that were dealt with. With
    SHARDPOST_HISTORY_DAYS, older records that later ones superseded leave the histories.

    All snapshots of two days are kept, then the last of each hour for a week, then the last of each
    day for SHARDPOST_SNAPSHOT_DAYS; longer, what a frozen week is of. Compactions, e-mails and
    readers go on meanwhile.

    Exit code 3 if something was kept only because what needs it could not be found out, or is
    being mailed.
    """
    from shardpost.maintenance.maintain import maintain_all

    settings = load()
    found = maintain_all(settings, datetime.now(UTC), dry_run=dry_run)
    if as_json:
        click.echo(json.dumps(found.as_json() | {"dry_run": dry_run}))
    else:
        click.echo("\n".join(found.lines(settings.snapshot_days)))
    for error in found.errors:
        click.echo(error, err=True)
    return NEEDS_ATTENTION if found.errors else DONE
