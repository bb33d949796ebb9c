"""Run requests: how a record of `run-requests` is parsed, and what is decided on it.

The first request of a key wins. While its run is active, the same request again changes nothing,
and another payload under the same key is a conflict: recorded, and not run.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.records import Record
from shardpost.run_requests.model.commands import Command, CommandState, Release
from shardpost.run_requests.model.run_ids import run_id
from shardpost.run_requests.model.timestamps import instant_of

NOT_SAID = "(not said)"
_SHOWN_CHARACTERS = 120  # of what was found, in a reason


@dataclass(frozen=True)
class Request:
    """A record that could be parsed: the run that it requests."""

    key: str
    dag: str
    conf: dict[str, Any]
    requested_by: str
    offset: int
    at: datetime


@dataclass(frozen=True)
class Refused:
    """Why a request is not run."""

    reason: str


@dataclass(frozen=True)
class Issue:
    """The request wins: this command is to be issued."""

    command: Command


@dataclass(frozen=True)
class AlreadyRunning:
    """The same is active already: the request changes nothing."""

    command: Command


@dataclass(frozen=True)
class Conflict:
    """Another payload is active under this key."""

    reason: str


@dataclass(frozen=True)
class Forward:
    """The record is in another partition than its key's: it is forwarded to that one."""

    partition: int


Outcome = Issue | AlreadyRunning | Conflict | Refused | Forward


@dataclass(frozen=True)
class RequestRules:
    """Which requests are accepted.

    `dags`: those that may be requested; `max_bytes`: of a key or value; `max_age`: an older request
    is refused; `partitions`: how many `run-requests` has.
    """

    dags: frozenset[str]
    max_bytes: int
    max_age: timedelta
    partitions: int
    now: datetime


def parse(record: Record, rules: RequestRules) -> Request | Refused:
    """Return the request of a record, or why it is refused."""
    for name, part in (("a key", record.key), ("a value", record.value)):
        if not part:
            return Refused(f"expected {name}, found {'null' if part is None else 'an empty one'}")
        if len(part) > rules.max_bytes:
            return Refused(
                f"expected {name} of at most {rules.max_bytes} bytes (SHARDPOST_REQUEST_BYTES),"
                f" found {len(part)}"
            )
    try:
        key = (record.key or b"").decode()
        form = json.loads(record.value or b"")
        json.dumps(form, ensure_ascii=False, allow_nan=False).encode()  # can be passed on
    except (ValueError, RecursionError) as error:
        return Refused(f"expected a key in UTF-8 and a value in JSON: {_shown(error)}")
    return _request(key, form, record)


def _request(key: str, form: object, record: Record) -> Request | Refused:
    if not isinstance(form, dict):
        return Refused(f"expected an object, found {_shown(form)}")
    dag, conf = form.get("Dag"), form.get("Conf", {})
    requested_by = form.get("RequestedBy", NOT_SAID)
    if not isinstance(dag, str) or not dag:
        return Refused(f"expected the name of a DAG as Dag, found {_found(form, 'Dag')}")
    if not isinstance(conf, dict):
        return Refused(f"expected an object as Conf, found {_shown(conf)}")
    if not isinstance(requested_by, str):
        return Refused(f"expected a text as RequestedBy, found {_shown(requested_by)}")
    at = instant_of(record.timestamp)
    return Request(key, dag, conf, requested_by or NOT_SAID, record.offset, at)


def outcome_of(
    record: Record, active: Command | None, release: Release | None, rules: RequestRules
) -> Outcome:
    """Return what is decided on a record.

    `active` is the command in force under its key; `release` says that its run has ended, and when.
    """
    request = parse(record, rules)
    if isinstance(request, Refused):
        return request
    partition = partition_of(request.key, rules.partitions)
    if partition != record.partition:
        return Forward(partition)
    return decide(request, active, release, rules)


def decide(
    request: Request, active: Command | None, release: Release | None, rules: RequestRules
) -> Issue | AlreadyRunning | Conflict | Refused:
    """Return what is decided on a request; one from before a run's end counts as made during it."""
    if request.dag not in rules.dags:
        known = ", ".join(sorted(rules.dags))
        return Refused(f"{_shown(request.dag)} may not be requested, only {known}")
    if rules.now - request.at > rules.max_age:
        return Refused(
            f"requested {request.at:%Y-%m-%d %H:%M} UTC, more than {rules.max_age.days} days ago"
            " (SHARDPOST_REQUEST_DAYS): send the request again"
        )
    if active is None or (release is not None and request.at >= release.at):
        return Issue(issued(request))
    if active.state is CommandState.UNREADABLE:
        return Conflict("the command that holds the key cannot be decoded")
    if _payload(request.dag, request.conf) == _payload(active.dag, active.conf):
        return AlreadyRunning(active)
    return Conflict(f"run {active.run_id}, requested by {active.requested_by}, has another payload")


def issued(request: Request) -> Command:
    """Return the command of a request that wins."""
    name = run_id(request.key, request.offset, int(request.at.timestamp() * 1000))
    by, offset = request.requested_by, request.offset
    return Command(request.key, CommandState.ISSUED, request.dag, request.conf, by, offset, name)


def _payload(dag: str, conf: dict[str, Any]) -> str:
    """Return DAG and Conf as a canonical text: the same for the same JSON; 1 and true differ."""
    return json.dumps([dag, conf], sort_keys=True)


def _found(form: dict[str, Any], field: str) -> str:
    return _shown(form[field]) if field in form else "none"


def _shown(found: object) -> str:
    text = str(found) if isinstance(found, Exception) else json.dumps(found)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
