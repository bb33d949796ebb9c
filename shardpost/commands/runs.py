"""`shardpost runs`: ask for runs, see them, dispatch and release them."""

import json
import time
from datetime import UTC, datetime
from typing import Any

import click

from shardpost.commands.options import AS_JSON, Key, person
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError, UsageError
from shardpost.settings import Settings, load

POLL_SECONDS = 0.5
BY = click.option("--by", metavar="NAME", help="Who asks; else the user of this machine.")


@click.group()
def command() -> None:
    """Ask for runs of DAGs: many may ask, one runs."""


@command.command("request")
@click.argument("key", type=Key())
@click.option("--dag", required=True, metavar="DAG", help="The DAG that is to run.")
@click.option("--conf", default="{}", metavar="JSON", help="Its params, as a JSON object.")
@click.option("--wait", is_flag=True, help="Wait until it is known what became of the request.")
@BY
@AS_JSON
def request_command(key: str, as_json: bool, **asked: Any) -> int:
    """Ask for a run under a key, such as weekly_email/2026-W47.

    If a run of that key is on its way, nothing happens; with another payload it is a conflict. With
    --wait, prints which of these it was; exit code 3: a conflict, or refused.
    """
    from shardpost.run_requests.request_client import ask

    settings = load()
    form = {
        "Dag": asked["dag"],
        "Conf": _object(asked["conf"]),
        "RequestedBy": asked["by"] or person(),
    }
    if not key:
        raise UsageError("run key: expected at least one character")
    lies = ask(settings, key, form)
    where = f"{settings.topic('run-requests')}[{lies.partition}]@{lies.offset}"
    if not asked["wait"]:
        result = {"key": key, "partition": lies.partition, "offset": lies.offset}
        click.echo(json.dumps(result) if as_json else f"asked: {where}")
        return DONE
    fate = _awaited(settings, lies, where)
    click.echo(json.dumps(_as_json(key, fate)) if as_json else _in_words(key, fate))
    return NEEDS_ATTENTION if fate.kind in ("conflict", "refused") else DONE


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--conf {text!r}: expected a JSON object: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"--conf {text!r}: expected a JSON object")
    return found


def _awaited(settings: Settings, lies: Any, where: str) -> Any:
    """Return the settled fate; ShardpostError, with what is known, at the deadline."""
    from shardpost.run_requests.request_client import request_status

    deadline = time.monotonic() + settings.request_wait
    while (fate := request_status(settings, lies)) is None or not fate.settled:
        if time.monotonic() > deadline:
            stands = "is not taken up" if fate is None else "has won, and its run is not started"
            raise ShardpostError(
                f"{where} {stands} after {settings.request_wait:g} s (SHARDPOST_REQUEST_WAIT): it"
                " stays asked for; `shardpost runs dispatch` says what is wrong"
            )
        time.sleep(POLL_SECONDS)
    return fate


def _as_json(key: str, fate: Any) -> dict[str, Any]:
    run = fate.command
    return {
        "key": key,
        "fate": fate.kind,
        "dag": run and run.dag,
        "run_id": run and run.run_id,
        "requested_by": run and run.requested_by,
        "since": fate.since and fate.since.isoformat(),
        "why": fate.why,
    }


def _in_words(key: str, fate: Any) -> str:
    said = f"{fate.kind}: {key}"
    if fate.why:
        return f"{said}: {fate.why}"
    run = fate.command
    return (
        f"{said}: run {run.run_id} of {run.dag}, asked for by {run.requested_by}, since"
        f" {fate.since:%Y-%m-%d %H:%M:%S} UTC"
    )


@command.command("list")
@AS_JSON
def list_command(as_json: bool) -> int:
    """Print the commands in force, their runs and ages, then the conflicts of the last days."""
    from shardpost.run_requests.run_list import listed

    rows = listed(load())
    if as_json:
        click.echo(json.dumps(rows))
    else:
        click.echo(_table(rows, datetime.now(UTC)) if rows else "no run is asked for")
    return DONE


def _table(rows: list[dict[str, Any]], now: datetime) -> str:
    from shardpost.commands.text_table import text_table

    heading = ("key", "state", "age", "dag", "asked for by", "run")
    lines = [
        (
            row["key"],
            row["state"],
            _age(now - datetime.fromisoformat(row["since"])),
            row["dag"] or "",
            row["requested_by"] or "",
            row["run_id"] or "",
        )
        for row in rows
    ]
    return text_table(heading, lines)


def _age(age: Any) -> str:
    minutes, seconds = divmod(max(0, int(age.total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    shown = [f"{number} {unit}" for number, unit in parts if number] or ["0 s"]
    return " ".join(shown[:2])


@command.command("dispatch")
@AS_JSON
def dispatch_command(as_json: bool) -> int:
    """Decide on what was asked, start it, free what has ended; the DAG does the same.

    Exit code 1 if a command could not be started: it is committed, and the next dispatch starts it.
    3 if Kafka removed requests before they were read.
    """
    from shardpost.embedded.airflow_home import with_login
    from shardpost.run_requests.dispatch import dispatch

    tally = dispatch(with_login(load()), datetime.now(UTC))
    click.echo(json.dumps(vars(tally)) if as_json else tally.in_words())
    return NEEDS_ATTENTION if tally.lost else DONE


@command.command("release")
@click.argument("key", type=Key())
@click.option("--why", required=True, metavar="TEXT", help="Why; kept on `decisions`.")
@BY
def release_command(key: str, why: str, by: str | None) -> int:
    """Free a key whose run never ends; its run in Airflow goes on, if there is one."""
    from shardpost.run_requests.release import release

    if not why.strip():
        raise UsageError("--why: expected a reason, found none")
    freed = release(load(), key, by or person(), why, datetime.now(UTC))
    click.echo(f"released: {key}; run {freed.run_id} of {freed.dag} is not touched")
    return DONE
