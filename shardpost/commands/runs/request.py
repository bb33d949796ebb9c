"""`shardpost runs request`: request a run, and wait for the status of the request."""

import json
import time
from typing import TYPE_CHECKING, Any

import click

from shardpost.commands.options import AS_JSON, BY, Key, who
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError, UsageError
from shardpost.run_requests.model.requests import RequestStatus
from shardpost.settings import Settings, load

if TYPE_CHECKING:
    from shardpost.run_requests.request_client import SentRequest

POLL_SECONDS = 0.5


@click.command("request")
@click.argument("key", type=Key())
@click.option("--dag", required=True, metavar="DAG", help="DAG to run.")
@click.option(
    "--conf", "text", default="{}", metavar="JSON", help="Params of the run, as a JSON object."
)
@click.option("--wait", is_flag=True, help="Wait for the status of the request, and print it.")
@BY
@AS_JSON
def request_command(
    key: str, *, dag: str, text: str, wait: bool, by: str | None, as_json: bool
) -> int:
    """Request a run under a key, such as weekly_email/2026-W47.

    While a run of that key is active, the same request again changes nothing, and one with another
    payload is a conflict. With --wait, prints which of these it was; exit code 3 for a conflict or
    a refusal.
    """
    from shardpost.run_requests.request_client import send_request

    settings = load()
    value = {"Dag": dag, "Conf": _json_object(text), "RequestedBy": who(by)}
    sent = send_request(settings, key, value)
    if wait:
        return _print_status(key, _settled_status(settings, sent), as_json=as_json)
    _, partition, offset = sent.coordinates
    result = {"key": key, "partition": partition, "offset": offset}
    click.echo(json.dumps(result) if as_json else f"requested: {sent.coordinates}")
    return DONE


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--conf {text!r}: expected a JSON object: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"--conf {text!r}: expected a JSON object")
    return found


def _settled_status(settings: Settings, sent: "SentRequest") -> RequestStatus:
    """Wait for the settled status; ShardpostError, with what is known, at the deadline."""
    from shardpost.run_requests.request_client import request_status

    deadline = time.monotonic() + settings.request_wait
    while (status := request_status(settings, sent)) is None or not status.settled:
        if time.monotonic() > deadline:
            so_far = "is not processed yet" if status is None else "has won, its run is not started"
            raise ShardpostError(
                f"{sent.coordinates} {so_far} after {settings.request_wait:g} s"
                " (SHARDPOST_REQUEST_WAIT): the request stays in its topic;"
                " `shardpost runs dispatch` says what is wrong"
            )
        time.sleep(POLL_SECONDS)
    return status


def _print_status(key: str, status: RequestStatus, *, as_json: bool) -> int:
    click.echo(json.dumps(_as_json(key, status)) if as_json else _in_words(key, status))
    return NEEDS_ATTENTION if status.needs_attention else DONE


def _as_json(key: str, status: RequestStatus) -> dict[str, str | None]:
    command = status.command
    return {
        "key": key,
        "fate": status.kind,
        "dag": command.dag if command else None,
        "run_id": command.run_id if command else None,
        "requested_by": command.requested_by if command else None,
        "since": status.since.isoformat() if status.since else None,
        "why": status.why,
    }


def _in_words(key: str, status: RequestStatus) -> str:
    text = f"{status.kind}: {key}"
    if status.why or status.command is None:
        return f"{text}: {status.why}"
    command = status.command
    return (
        f"{text}: run {command.run_id} of {command.dag}, requested by {command.requested_by}, since"
        f" {status.since:%Y-%m-%d %H:%M:%S} UTC"
    )
