"""Run requests: how a record is parsed, and the status of a request."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shardpost.decisions import Decision, Kind
from shardpost.instants import instant_of
from shardpost.kafka.records import Record
from shardpost.run_requests.model.commands import Command, CommandEntry, CommandState, parse_json
from shardpost.run_requests.model.run_id import run_id

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

    def command(self) -> Command:
        """Return the command of this request, if it wins."""
        name = run_id(self.key, self.offset, int(self.at.timestamp() * 1000))
        by, offset = self.requested_by, self.offset
        return Command(self.key, CommandState.ISSUED, self.dag, self.conf, by, offset, name)


@dataclass(frozen=True)
class Refused:
    """Why a request is not run."""

    reason: str


MOST_BYTES = 65_536  # of a key or value


@dataclass(frozen=True)
class RequestRules:
    """Which requests are accepted.

    `dags`: those that may be requested; `max_age`: an older request is refused; `partitions`: how
    many `run-requests` has.
    """

    dags: frozenset[str]
    max_age: timedelta
    partitions: int
    now: datetime


def parse(record: Record, rules: RequestRules) -> Request | Refused:
    """Return the request of a record, or why it is refused."""
    for name, part in (("a key", record.key), ("a value", record.value)):
        if not part:
            return Refused(f"expected {name}, found {'null' if part is None else 'an empty one'}")
        if len(part) > MOST_BYTES:
            return Refused(f"expected {name} of at most {MOST_BYTES} bytes, found {len(part)}")
    try:
        key = (record.key or b"").decode()
        form = parse_json(record.value or b"")
    except ValueError as error:
        return Refused(f"expected a key in UTF-8 and a value in JSON: {shown(error)}")
    return _request(key, form, record)


def _request(key: str, form: object, record: Record) -> Request | Refused:
    if not isinstance(form, dict):
        return Refused(f"expected an object, found {shown(form)}")
    dag, conf = form.get("Dag"), form.get("Conf", {})
    requested_by = form.get("RequestedBy", NOT_SAID)
    if not isinstance(dag, str) or not dag:
        found = shown(dag) if "Dag" in form else "none"
        return Refused(f"expected the name of a DAG as Dag, found {found}")
    if not isinstance(conf, dict):
        return Refused(f"expected an object as Conf, found {shown(conf)}")
    if not isinstance(requested_by, str):
        return Refused(f"expected a text as RequestedBy, found {shown(requested_by)}")
    at = instant_of(record.timestamp)
    return Request(key, dag, conf, requested_by or NOT_SAID, record.offset, at)


def shown(value: object) -> str:
    """Return a wrong value, for a reason: as JSON, shortened."""
    text = str(value) if isinstance(value, Exception) else json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


WON, ALREADY_RUNNING = "won", "already running"
RUN_ENDED = "its run has ended since"


@dataclass(frozen=True)
class RequestStatus:
    """One of won, already running, conflict and refused; `settled`: it changes no more.

    `command` is the one in force under the key, `since` then: the request's own if it won.
    """

    kind: str
    settled: bool = True
    command: Command | None = None
    since: datetime | None = None
    why: str | None = None

    @property
    def needs_attention(self) -> bool:
        """Whether the request was not run, for a reason that needs a person."""
        return self.kind in (Kind.CONFLICT, Kind.REFUSED)

    def as_json(self, key: str) -> dict[str, str | None]:
        """Return the form of `runs request --wait --json`."""
        command = self.command
        return {
            "key": key,
            "fate": self.kind,
            "dag": command.dag if command else None,
            "run_id": command.run_id if command else None,
            "requested_by": command.requested_by if command else None,
            "since": self.since.isoformat() if self.since else None,
            "why": self.why,
        }


def status_of(
    offset: int,
    entries: Sequence[CommandEntry],
    decisions: Sequence[Decision],
    *,
    is_processed: bool,
) -> RequestStatus | None:
    """Return the status of the request at that offset; None while it is not processed yet.

    `entries` are the records of its key in `run-commands`, oldest first; `decisions` those on this
    very request.
    """
    in_force = _in_force(offset, entries)
    command, since = (in_force[-1].command, in_force[0].at) if in_force else (None, None)
    if decisions:
        kind, why = str(decisions[-1].kind), decisions[-1].why
        return RequestStatus(kind, command=command, since=since, why=why)
    if command is not None and command.request_offset == offset:
        # A command that is followed by a tombstone was started, and has ended.
        started = command.state is CommandState.STARTED or entries[-1] is not in_force[-1]
        return RequestStatus(WON, settled=started, command=command, since=since)
    if not is_processed:
        return None
    if command is None:
        return RequestStatus(ALREADY_RUNNING, why=RUN_ENDED)
    return RequestStatus(ALREADY_RUNNING, command=command, since=since)


def _in_force(offset: int, entries: Sequence[CommandEntry]) -> list[CommandEntry]:
    """Return the records of the command that was in force when that request was decided."""
    numbers = [entry.command.request_offset for entry in entries if entry.command]
    last = max((number for number in numbers if number <= offset), default=None)
    return [entry for entry in entries if entry.command and entry.command.request_offset == last]
