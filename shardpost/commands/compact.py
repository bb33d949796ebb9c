"""`shardpost compact`: one compaction, as the DAG of the same name runs it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from shardpost.errors import COULD_NOT
from shardpost.holders.compaction_job import COMPACT_POSITIONS, RECONCILE_POSITIONS
from shardpost.settings import load
from shardpost.spark.submit import submit


@click.command()
@click.option(
    "--reconcile",
    is_flag=True,
    help="Then read all that the inputs hold, and close what they do not hold any more: where"
    " tombstones were lost, or a topic was recreated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(reconcile: bool, as_json: bool) -> int:
    """Catch up with the input topics, commit one snapshot, publish the changes.

    Exit code 3, and nothing changed, if tombstones or other records may have been lost: reconcile
    then. Also 3 if it is done, and some of the inputs is behind an open transaction, or a list is
    too large to be published.
    """
    began = datetime.now(UTC)
    if reconcile:
        code, result = submit(load(), RECONCILE_POSITIONS, ["--reconcile"])
    else:
        code, result = submit(load(), COMPACT_POSITIONS, [])
    if result is None:
        return code or COULD_NOT
    if as_json:
        click.echo(json.dumps(result))
    else:
        click.echo(_in_words(result, began))
    for line in _notes(result):
        click.echo(line, err=True)
    return code


def _notes(result: dict[str, Any]) -> Iterator[str]:
    """Yield what somebody should know; the log above has the details."""
    if result["rejected"]:
        yield f"{result['rejected']} records rejected"
    if result["reconciled"]:
        yield f"{result['reconciled']} keys closed: not in the topics any more"
    if result["uncertain"]:
        yield f"{result['uncertain']} keys may have lost records: see the keys above"
    if result["too_large"]:
        yield (
            f"{result['too_large']} too large for a record of share-holders: see the clients above"
        )
    for found in result["open_transactions"]:
        where = f"{found['topic']}[{found['partition']}]@{found['offset']}"
        yield f"open transaction at {where}: what is behind it is not read yet"


def _in_words(result: dict[str, Any], began: datetime) -> str:
    snapshot = result["snapshot"]
    line = (
        f"snapshot {snapshot['snapshot']}{_whose(result, began)}:"
        f" {snapshot['positions']} open positions, {snapshot['holders']} holders,"
        f" {result['published']} records published"
    )
    if not result["rejected"]:
        return line
    return f"{line}, {result['rejected']} rejected (`shardpost letters list` has them)"


def _whose(result: dict[str, Any], began: datetime) -> str:
    """Return what to add to the number of a snapshot that this run has not made."""
    if result["changed"]:
        return ""
    if datetime.fromisoformat(result["snapshot"]["committed_at"]) >= began:
        return " (made by another run meanwhile; nothing new since)"
    return " (nothing new)"
