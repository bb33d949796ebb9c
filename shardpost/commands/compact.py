"""`shardpost compact`: one compaction, as the DAG of the same name runs it."""

import json
from typing import Any

import click

from shardpost.errors import DONE
from shardpost.holders.job import COMPACT_POSITIONS
from shardpost.settings import load
from shardpost.spark.submit import submit


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(as_json: bool) -> int:
    """Catch up with the input topics, commit one snapshot, publish the changes."""
    code, result = submit(load(), COMPACT_POSITIONS, [])
    if code != DONE or result is None:
        return code or 1
    if as_json:
        click.echo(json.dumps(result))
    else:
        click.echo(_in_words(result))
    if result["rejected"]:
        click.echo(f"{result['rejected']} records rejected", err=True)
    return code


def _in_words(result: dict[str, Any]) -> str:
    snapshot = result["snapshot"]
    return (
        f"snapshot {snapshot['snapshot']}{'' if result['changed'] else ' (nothing new)'}:"
        f" {snapshot['positions']} open positions, {snapshot['holders']} holders,"
        f" {result['published']} records published"
    )
