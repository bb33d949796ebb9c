"""The counts of a week's e-mail, as `email` and `emails` print them."""

import json
from typing import Any

import click

from shardpost.printable import one_line


def print_counts(document: dict[str, Any], *, as_json: bool) -> None:
    """Print the counts of weekly_email/model/shard_counts.py's form, as JSON or as a table."""
    click.echo(json.dumps(document) if as_json else counts_text(document))


def counts_text(document: dict[str, Any]) -> str:
    """Return the counts per shard, their sum, and the clients whose delivery is unknown."""
    from shardpost.commands.text_table import text_table
    from shardpost.weekly_email.model.shard_counts import COLUMNS

    shards = document["shards"]
    total = ["all", *(sum(shard[name] for shard in shards) for name in COLUMNS[1:])]
    rows = [*([shard[name] for name in COLUMNS] for shard in shards), total]
    table = text_table(COLUMNS, [[str(cell) for cell in row] for row in rows])
    unknown = document["unknown"]
    if not unknown:
        return table
    return (
        f"{table}\ndelivery unknown: {', '.join(map(one_line, unknown))}\n"
        "check the mail server's log, and say what it says by `shardpost emails resolve`;"
        " `shardpost email --on-unknown resend` sends them again, at most once, with the same"
        " Message-ID"
    )
