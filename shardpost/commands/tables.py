"""`shardpost tables list`, `views` and `maintain`, and `shardpost erase`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from shardpost.commands.console import (
    AS_JSON,
    BY,
    KEY,
    NEEDED_WHY,
    YES,
    confirm,
    print_document,
    text_table,
)
from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION, UsageError
from shardpost.installation import opened

if TYPE_CHECKING:
    from shardpost.maintenance.stored_tables import TableSize


RAW = (
    "rows are those in the files, which are not the table's where they are folded later: ask by"
    " `shardpost sql`, read them elsewhere by `shardpost tables views`"
)
HEADING = ("table", "rows", "files", "size", "log", "versions", "kept for")


@click.group()
def tables_command() -> None:
    """Look after the tables: print sizes, views for other engines, and remove expired data."""


@tables_command.command("list")
@AS_JSON
def list_command() -> int:
    """Print the size of each table, and what prevents its files from being removed.

    `rows` counts the rows in the files of the newest snapshot, before they are merged: a client may
    have several, and a new position none yet (`shardpost sql` queries the merged tables). `files`
    and `size` include what older snapshots need; `versions` are the kept versions.
    """
    from shardpost.maintenance.stored_tables import table_sizes

    found = table_sizes(opened().tables)
    print_document(found, lambda: _sizes_text(found))
    return 0


def _sizes_text(found: "list[TableSize]") -> str:
    from shardpost.wording import in_bytes

    if not found:
        return "no table yet: run `shardpost compact`"
    rows = [
        (
            *(size.table, str(size.rows), str(size.files), in_bytes(size.bytes)),
            *(in_bytes(size.log_bytes), str(size.versions), size.kept_for),
        )
        for size in found
    ]
    return f"{text_table(HEADING, rows)}\n{RAW}"


@tables_command.command("views")
@click.option(
    "--engine",
    required=True,
    type=click.Choice(["duckdb", "spark", "trino", "polars"]),
    help="Which engine is to read the tables.",
)
def views_command(engine: str) -> int:
    """Print views by which another engine reads the tables right: SQL, or Python for Polars.

    A table's rows are not its current state, even read through Delta: `share_holders` has several
    of a client, and `positions` lacks the changes that are in its history, `position_events`, and
    not folded into the table yet. The views have the rows of the newest snapshot, also of later
    ones, until rebuilt tables are swapped; then they raise an error, and have to be printed again.
    """
    from shardpost import tables
    from shardpost.holders.engine_views import Engine, EngineViews

    snapshot = tables.snapshot()
    click.echo(EngineViews(Engine(engine), opened().tables.root, snapshot).text(), nl=False)
    return 0


@tables_command.command("maintain")
@click.option("--dry-run", is_flag=True, help="Print what would go, and why; change nothing.")
@AS_JSON
def maintain_command(dry_run: bool) -> int:
    """Erase old audiences, close old weeks, remove old dead letters and files that nothing needs.

    SHARDPOST_AUDIENCE_DAYS and SHARDPOST_LEDGER_DAYS say which weeks are old,
    SHARDPOST_LETTER_DAYS which resolved dead letters. With SHARDPOST_HISTORY_DAYS, older records
    that later ones superseded are deleted from the history tables.

    All snapshots of two hours are kept, then the last of each minute for two days, of each hour for
    a week, and of each day for SHARDPOST_SNAPSHOT_DAYS. A snapshot from which a week's audience was
    frozen is kept longer, until that audience is erased. Compactions, e-mails and readers go on
    meanwhile.

    Exit code 3 if something was kept only because it could not be found out whether it is still
    needed, or because its week is being mailed.
    """
    from shardpost.maintenance.maintain import maintain_all

    installation = opened()
    found = maintain_all(installation, datetime.now(UTC), dry_run=dry_run)
    print_document(
        found.as_json() | {"dry_run": dry_run},
        lambda: "\n".join(found.lines(installation.tables.snapshot_days)),
    )
    for error in found.errors:
        click.echo(error, err=True)
    return NEEDS_ATTENTION if found.errors else DONE


@click.command()
@click.argument("client", type=KEY)
@NEEDED_WHY
@YES
@BY
@click.option("--dry-run", is_flag=True, help="Print what would be erased; change nothing.")
@AS_JSON
def erase_command(client: str, why: str, by: str, dry_run: bool) -> int:
    """Erase a client: its contact from tables and audiences, its id from the ledger.

    What stays, what is not erased, and what others must do is printed. The ledger keeps a hash of
    the client's id, so that it is not mailed again. Exit code 3: done, and the tables have its
    contact (again); 1: something could not be erased, since it is in use.
    """
    from shardpost.maintenance.erasure import ErasureRequest, erase

    if not client:
        raise UsageError("CLIENT: expected a client id, found none")
    installation, request = opened(), ErasureRequest(client, by, why, datetime.now(UTC))
    if not dry_run:
        confirm(f"Erase {client}?", lambda: erase(installation, request, dry_run=True).lines())
    result = erase(installation, request, dry_run=dry_run)
    print_document(result, result.lines)
    if result.postponed:
        parts = ", ".join(result.postponed)
        click.echo(f"shardpost: not erased: {parts}; run again", err=True)
        return COULD_NOT
    return DONE if dry_run or result.is_complete else NEEDS_ATTENTION
