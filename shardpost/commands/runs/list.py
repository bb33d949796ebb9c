"""`shardpost runs list`: the commands in force, and recent conflicts."""

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from shardpost.commands.options import AS_JSON
from shardpost.commands.text_table import text_table
from shardpost.errors import DONE
from shardpost.settings import load

if TYPE_CHECKING:
    from shardpost.run_requests.request_client import RunRow

NOTHING = "no key is taken: no run that was requested is waiting or running"
HEADING = ("key", "state", "age", "dag", "requested by", "run")


@click.command("list")
@AS_JSON
def list_command(as_json: bool) -> int:
    """Print the commands in force, and recent conflicts."""
    from shardpost.run_requests.request_client import list_runs

    now = datetime.now(UTC)
    rows = list_runs(load(), now)
    if as_json:
        click.echo(json.dumps(rows))
    else:
        cells = [_cells(row, now) for row in rows]
        click.echo(text_table(HEADING, cells) if cells else NOTHING)
    return DONE


def _cells(row: "RunRow", now: datetime) -> tuple[str, ...]:
    age = _in_words(now - datetime.fromisoformat(row["since"]))
    requested_by, run_id = row["requested_by"] or "", row["run_id"] or ""
    return row["key"], row["state"], age, row["dag"] or "", requested_by, run_id


def _in_words(age: timedelta) -> str:
    """Return an age in its two largest units, such as `2 h 5 min`."""
    minutes, seconds = divmod(max(0, int(age.total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    shown = [f"{number} {unit}" for number, unit in parts if number] or ["0 s"]
    return " ".join(shown[:2])
