"""`shardpost rebuild start`."""

import click

from shardpost.commands.options import AS_JSON, BY, who
from shardpost.commands.rebuild.submitted import carry_out
from shardpost.errors import UsageError


@click.command("start")
@click.option("--country", metavar="CODE", help="Whose stock counts; by default as now.")
@click.option(
    "--from",
    "source",
    type=click.Choice(["history", "kafka"]),
    default="history",
    show_default=True,
    help="Decode the raw records of the histories again, or read the topics.",
)
@click.option(
    "--tables",
    metavar="NAMES",
    help="Names with commas, and with them what is made of these; by default all.",
)
@BY
@AS_JSON
def start_command(
    country: str | None, source: str, tables: str | None, by: str | None, as_json: bool
) -> int:
    """Compute the tables anew beside those in use, or go on where a run was killed.

    They are computed at the newest snapshot, and topped up after each compaction until they are
    swapped or dropped. Readers do not see them until then.

    `--tables share_holders` is enough for another country, `--tables positions` for a change of
    how the latest record of a key is found; a change of decoding needs the histories, so all.
    """
    from shardpost.rebuilds.model.rebuild import Source
    from shardpost.rebuilds.order import Action, Order, tables_of

    if country is not None and not country.strip():
        raise UsageError("--country: expected a code, found none")
    if tables is not None and not tables.strip():
        raise UsageError("--tables: expected names, found none")
    order = Order(
        Action.START,
        who(by),
        source=Source(source),
        country=country,
        tables=tables_of(tables or ""),
    )
    return carry_out(order, as_json=as_json)
