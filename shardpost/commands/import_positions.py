"""`shardpost import`: a full list of positions compared with what is open, and imported."""

import json
from datetime import UTC, datetime

import click

from shardpost.commands.options import AS_JSON, BY, who
from shardpost.errors import COULD_NOT
from shardpost.position_import.import_job import IMPORT_POSITIONS, arguments_of, find_source
from shardpost.position_import.model.import_ids import require_usable
from shardpost.position_import.model.plan import notes, summary
from shardpost.position_import.model.source import ImportRequest
from shardpost.printable import one_line
from shardpost.settings import load
from shardpost.shares import share
from shardpost.spark.submit import submit


class Share(click.ParamType[float]):
    """A share, also as a percentage."""

    name = "share"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the share, from 0 to 1."""
        try:
            return share(value)
        except ValueError as error:
            self.fail(f"{error}, found {value}", param, ctx)


@click.command("import")
@click.argument("source")
@click.option("--apply", "is_applied", is_flag=True, help="Write it; else it is only planned.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["csv", "json", "parquet"]),
    help="Of the files; by default what their names say.",
)
@click.option("--table", metavar="NAME", help="The table to read, with a JDBC URL.")
@click.option("--query", metavar="SQL", help="Or the query whose result is the list.")
@click.option(
    "--id", "import_id", metavar="ID", help="Import id; by default that of the list's content."
)
@click.option(
    "--max-closed",
    type=Share(),
    metavar="20%",
    help="Share of the open positions that may close; by default SHARDPOST_IMPORT_MAX_CLOSED.",
)
@click.option("--why", metavar="TEXT", help="Reason; recorded on `decisions`.")
@BY
@AS_JSON
def command(
    source: str,
    is_applied: bool,
    format_: str | None,
    table: str | None,
    query: str | None,
    import_id: str | None,
    max_closed: float | None,
    why: str | None,
    by: str | None,
    as_json: bool,
) -> int:
    """Compare a full list of positions with what is open, and import it with --apply.

    SOURCE is a CSV, JSON or Parquet file, a folder of such, or a JDBC URL. Only the difference is
    written to `positions`: what is new or changed, and a tombstone for each open position that the
    list does not have. Exit code 3, and nothing written: too many positions would close.
    """
    settings = load()
    request = ImportRequest(
        find_source(source, format_, table, query),
        datetime.now(UTC),
        who(by),
        is_applied,
        None if import_id is None else require_usable(import_id),
        max_closed,
        why,
    )
    code, result = submit(settings, IMPORT_POSITIONS, arguments_of(request))
    if result is None:
        return code or COULD_NOT
    if as_json:
        click.echo(json.dumps(result))
    else:
        for line in summary(result):
            click.echo(one_line(line))
        for line in notes(result):
            click.echo(one_line(line), err=True)
    if result["refused"]:
        click.echo(one_line(f"shardpost: refused: {result['refused']}"), err=True)
    return code
