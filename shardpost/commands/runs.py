"""`shardpost runs`: request, list, dispatch and release runs of DAGs."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from shardpost.commands import console
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError
from shardpost.installation import Installation, opened
from shardpost.run_requests.model.requests import RequestStatus
from shardpost.settings import load
from shardpost.waiting import attempts
from shardpost.wording import duration_text

if TYPE_CHECKING:
    from shardpost.kafka.kafka import Kafka
    from shardpost.run_requests.request_client import SentRequest


POLL_SECONDS, WAIT_SECONDS = 0.5, 420.0


@click.group()
def runs_command() -> None:
    """Request DAG runs: for each key, one runs at a time."""


@runs_command.command("request")
@click.argument("key", type=console.KEY)
@click.option("--dag", required=True, metavar="DAG", help="DAG to run, such as weekly_email.")
@click.option(
    "--conf", "text", default="{}", metavar="JSON", help="Params of the run, as a JSON object."
)
@click.option("--wait", is_flag=True, help="Wait for the status of the request, and print it.")
@console.BY
@console.AS_JSON
def request_command(key: str, *, dag: str, text: str, wait: bool, by: str) -> int:
    """Request a run under a key, such as weekly_email/2026-W47.

    While a run of that key is active, the same request again changes nothing, and one with another
    payload is a conflict. With --wait, prints the outcome; exit code 3 for a conflict or a refusal.
    """
    from shardpost.run_requests.request_client import conf_of, send_request

    installation = opened()
    value = {"Dag": dag, "Conf": conf_of("--conf", text), "RequestedBy": by}
    sent = send_request(installation.kafka, key, value)
    if wait:
        status = _settled_status(installation.kafka, sent)
        document = status.as_json(key)
        console.print_document(document, lambda: _status_text(key, status))
        return NEEDS_ATTENTION if status.needs_attention else DONE
    _, partition, offset = sent.coordinates
    result = {"key": key, "partition": partition, "offset": offset}
    console.print_document(result, lambda: f"requested: {sent.coordinates}")
    return DONE


def _settled_status(kafka: "Kafka", sent: "SentRequest") -> RequestStatus:
    """Wait for the settled status; ShardpostError, with what is known, at the deadline."""
    from shardpost.run_requests.request_client import request_status

    for _ in attempts(WAIT_SECONDS, POLL_SECONDS):
        status = request_status(kafka, sent)
        if status is not None and status.settled:
            return status
    so_far = "is not processed yet" if status is None else "has won, but its run has not started"
    raise ShardpostError(
        f"{sent.coordinates} {so_far} after {WAIT_SECONDS:g} s: the request remains in"
        " its topic; `shardpost runs dispatch` shows what is wrong"
    )


def _status_text(key: str, status: RequestStatus) -> str:
    text = f"{status.kind}: {key}"
    if status.why or status.command is None:
        return f"{text}: {status.why}"
    command = status.command
    return (
        f"{text}: run {command.run_id} of {command.dag}, requested by {command.requested_by}, since"
        f" {status.since:%Y-%m-%d %H:%M:%S} UTC"
    )


NO_COMMAND = "no requested run is waiting or running"
HEADING = ("key", "state", "age", "dag", "requested by", "run")


@runs_command.command("list")
@console.AS_JSON
def list_command() -> None:
    """List accepted requests whose runs have not ended, and recent conflicts."""
    from shardpost.run_requests.request_client import list_decided, list_runs

    now, installation = datetime.now(UTC), opened()
    kafka = installation.kafka
    rows = list_runs(kafka, list_decided(kafka, now, installation.settings.request_days))
    cells = [
        (row.key, row.state, duration_text(now - row.since), row.dag, row.requested_by, row.run_id)
        for row in rows
    ]
    console.print_document(rows, lambda: console.text_table(HEADING, cells) if rows else NO_COMMAND)


@runs_command.command("dispatch")
@console.AS_JSON
def dispatch_command() -> int:
    """Decide on all requests, and start the runs of those that won.

    Frees the keys of ended runs first, as the DAG dispatch_run_requests does.

    Exit code 1 if an accepted run could not be started; the next dispatch retries it.
    Exit code 3 if Kafka deleted requests before they were read.
    """
    from shardpost.embedded.airflow import with_login
    from shardpost.run_requests.dispatch import dispatch

    counts = dispatch(Installation(with_login(load())), datetime.now(UTC))
    console.print_document(vars(counts), counts.in_words)
    return NEEDS_ATTENTION if counts.lost else DONE


@runs_command.command("release")
@click.argument("key", type=console.KEY)
@console.NEEDED_WHY
@console.YES
@console.BY
def release_command(key: str, why: str, by: str) -> None:
    """Free a key whose run never ends.

    Its run in Airflow, if there is one, is left running.
    """
    from shardpost.run_requests.request_client import release

    installation = opened()
    console.confirm(
        f"Release {key}, so that another run with this key can start, even beside one that is "
        f"still running?"
    )
    command = release(installation, key, by, why, datetime.now(UTC))
    click.echo(f"released: {key}; run {command.run_id} of {command.dag} is left running")
