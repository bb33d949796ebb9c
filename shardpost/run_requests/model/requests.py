"""Run requests: what a record of `run-requests` asks for, and what follows from it.

The first request of a key wins. While its run is on its way, the same request again changes
nothing, and another payload under the same key is a conflict: kept, and not run.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shardpost.kafka.partitioning import partition_of
from shardpost.run_requests.model.commands import Command, CommandEntry, CommandState, Release
from shardpost.run_requests.model.run_ids import run_id

NOBODY = "(not said)"
_SHOWN = 120  # characters of what was found, in a reason


@dataclass(frozen=True)
class RequestRecord:
    """One record of `run-requests`, as it lies there."""

    partition: int
    offset: int
    at: datetime
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Request:
    """What one record asks for."""

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
    """The same is on its way: the request changes nothing."""

    command: Command


@dataclass(frozen=True)
class Conflict:
    """Something else is on its way under this key."""

    command: Command
    reason: str


@dataclass(frozen=True)
class Forward:
    """The record lies in another partition than its key's: it goes to that one."""

    partition: int


Outcome = Issue | AlreadyRunning | Conflict | Refused | Forward


@dataclass(frozen=True)
class RequestRules:
    """What requests may ask for.

    `dags`: those that may be asked for; `most_bytes`: of a value; `oldest`: the age from which a
    request is refused; `partitions`: how many `run-requests` has.
    """

    dags: frozenset[str]
    most_bytes: int
    oldest: timedelta
    partitions: int
    now: datetime


def parse(record: RequestRecord, rules: RequestRules) -> Request | Refused:
    """Return the request of a record, or why it is none."""
    for name, part in (("a key", record.key), ("a value", record.value)):
        if not part:
            return Refused(f"expected {name}, found {'null' if part is None else 'an empty one'}")
        if len(part) > rules.most_bytes:
            return Refused(
                f"expected {name} of at most {rules.most_bytes} bytes (SHARDPOST_REQUEST_BYTES),"
                f" found {len(part)}"
            )
    try:
        key = (record.key or b"").decode()
        form = json.loads(record.value or b"")
        json.dumps(form, ensure_ascii=False, allow_nan=False).encode()  # can be passed on
    except (ValueError, RecursionError) as error:
        return Refused(f"expected a key in UTF-8 and a value in JSON: {_shown(error)}")
    return _request(key, form, record)


def _request(key: str, form: object, record: RequestRecord) -> Request | Refused:
    if not isinstance(form, dict):
        return Refused(f"expected an object, found {_shown(form)}")
    dag, conf = form.get("Dag"), form.get("Conf", {})
    by = form.get("RequestedBy", NOBODY)
    if not isinstance(dag, str) or not dag:
        return Refused(f"expected the name of a DAG as Dag, found {_found(form, 'Dag')}")
    if not isinstance(conf, dict):
        return Refused(f"expected an object as Conf, found {_shown(conf)}")
    if not isinstance(by, str):
        return Refused(f"expected a text as RequestedBy, found {_shown(by)}")
    return Request(key, dag, conf, by or NOBODY, record.offset, record.at)


def outcome_of(
    record: RequestRecord, held: CommandEntry | None, released: Release | None, rules: RequestRules
) -> Outcome:
    """Return what follows from a record.

    `held` is the command in force under its key; `released` says that its run has ended, and when.
    """
    request = parse(record, rules)
    if isinstance(request, Refused):
        return request
    home = partition_of(request.key, rules.partitions)
    return decide(request, held, released, rules) if home == record.partition else Forward(home)


def decide(
    request: Request, held: CommandEntry | None, released: Release | None, rules: RequestRules
) -> Issue | AlreadyRunning | Conflict | Refused:
    """Return what follows from a request; one from before the end of a run came while it ran."""
    if request.dag not in rules.dags:
        known = ", ".join(sorted(rules.dags))
        return Refused(f"{_shown(request.dag)} may not be asked for, only {known}")
    if rules.now - request.at > rules.oldest:
        return Refused(
            f"asked {request.at:%Y-%m-%d %H:%M} UTC, more than {rules.oldest.days} days ago"
            " (SHARDPOST_REQUEST_DAYS): ask again"
        )
    command = held.command if held else None
    if command is None or (released is not None and request.at >= released.at):
        return Issue(issued(request))
    if command.state is CommandState.UNREADABLE:
        return Conflict(command, "the command that holds the key cannot be read")
    if _payload(request.dag, request.conf) == _payload(command.dag, command.conf):
        return AlreadyRunning(command)
    return Conflict(
        command, f"run {command.run_id}, asked for by {command.requested_by}, has another payload"
    )


def issued(request: Request) -> Command:
    """Return the command of a request that wins."""
    name = run_id(request.key, request.offset, int(request.at.timestamp() * 1000))
    who, offset = request.requested_by, request.offset
    return Command(request.key, CommandState.ISSUED, request.dag, request.conf, who, offset, name)


def _payload(dag: str, conf: dict[str, Any]) -> str:
    """Return DAG and Conf as a text that is the same for the same JSON; 1 and true differ."""
    return json.dumps([dag, conf], sort_keys=True)


def _found(form: dict[str, Any], field: str) -> str:
    return _shown(form[field]) if field in form else "none"


def _shown(found: object) -> str:
    text = str(found) if isinstance(found, Exception) else json.dumps(found)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
