"""The counts of a week's e-mail, as `email` and `emails` print them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from shardpost.printable import one_line


def print_counts(document: dict[str, Any], *, as_json: bool) -> None:
    """Print the counts of weekly_email/model/week_report.py's form, as JSON or as a table."""
    click.echo(json.dumps(document) if as_json else counts_text(document))


def counts_text(document: Mapping[str, Any]) -> str:
    """Return the counts per shard, their sum, and what a person should know of them."""
    from shardpost.commands.text_table import text_table
    from shardpost.weekly_email.model.week_report import COLUMNS

    shards = document["shards"]
    total = ["all", *(sum(shard[name] for shard in shards) for name in COLUMNS[1:])]
    rows = [*([shard[name] for name in COLUMNS] for shard in shards), total]
    table = text_table(COLUMNS, [[str(cell) for cell in row] for row in rows])
    return "\n".join([table, *_remarks(document)])


def _remarks(document: Mapping[str, Any]) -> Iterator[str]:
    from shardpost.weekly_email.model.week_report import failed_line

    week = document["week"]
    if failed := failed_line(week, [document]):
        yield failed
    if waiting := document.get("without_contact"):
        yield (
            f"open: {waiting} without a usable contact, which may come before the week is frozen:"
            f" `shardpost emails --week {week} --state open` lists them"
        )
    if closed := document.get("closed"):
        yield closed
    if erased := document.get("audience_erased"):
        yield (
            f"the audience of {week}, {erased['clients']} clients, was erased on"
            f" {erased['at'][:10]} (SHARDPOST_AUDIENCE_DAYS): who of them was open is not known any"
            " more, and nobody can be mailed of that week"
        )
    if unknown := document["unknown"]:
        yield (
            f"delivery unknown: {', '.join(map(one_line, unknown))}\n"
            "check the mail server's log, and say what it says by `shardpost emails resolve`;"
            " `shardpost email --on-unknown resend` sends them again, at most once, with the same"
            " Message-ID"
        )
