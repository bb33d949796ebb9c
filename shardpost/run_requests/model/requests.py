"""Run requests: how a record is parsed, what is decided on it, and the status of a request.

The first request of a key wins. While its run is active, the same request again changes nothing,
and another payload under the same key is a conflict: recorded, and not run.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from shardpost.decisions import Decision, Kind
from shardpost.errors import UsageError, single_line
from shardpost.instants import instant_of
from shardpost.kafka.records import Record, partition_of
from shardpost.run_requests.model.commands import (
    Command,
    CommandEntry,
    CommandState,
    Release,
    parse_json,
)
from shardpost.wording import some_of

PREFIX = "request__"  # unlike Airflow's own: scheduled__, manual__, backfill__, asset_triggered__
# A run id is part of file names: shorter than the 250 characters that Airflow takes.
LONGEST_KEY = 80
_KEPT = 40
_HASH = 32
# Of the characters that Airflow allows ([A-Za-z0-9_.~:+-]), those that a file name takes as well.
_OTHERS = re.compile(rb"[^A-Za-z0-9_.-]")
MOST_BYTES = 65_536  # of a key or value
NOT_SAID = "(not said)"
REQUESTED_BY = ", requested by "  # in the note of a run
_SHOWN_CHARACTERS = 120  # of what was found, in a reason
WON, ALREADY_RUNNING = "won", "already running"


def run_id(key: str, offset: int, timestamp_ms: int) -> str:
    """Return the id of a request's run in Airflow: `request__<key>__<offset>-<milliseconds>`.

    Two requests never have the same, so Airflow itself rejects a second run of one. The timestamp
    tells apart two of one offset, where the topic was deleted and recreated.
    """
    return f"{PREFIX}{escaped(key)}__{offset}-{max(0, timestamp_ms)}"


def escaped(key: str) -> str:
    """Return the key in characters that Airflow allows, reversible up to LONGEST_KEY characters.

    Any other byte is `~` and two hexadecimal digits. A longer key ends in `~~` and a hash of it.
    """
    raw = key.encode(errors="surrogatepass")
    text = _OTHERS.sub(lambda match: b"~%02X" % match[0][0], raw).decode()
    if len(text) <= LONGEST_KEY:
        return text
    return f"{text[:_KEPT]}~~{sha256(raw).hexdigest()[:_HASH]}"


# {DAG of ours: its params, if any}, known without Airflow; tests/dags/test_policy.py compares them.
DAG_PARAMS = {
    "compact_positions": "country_changed accept_drop inputs_changed follow",
    "dispatch_run_requests": "",
    "import_positions": "source into profile watermark table query apply max_closed import_id"
    " up_to why",
    "maintain_tables": "dry_run",
    "rebuild_tables": "action country holds source tables max_changed why",
    "sweep_dead_letters": "",
    "watch_kafka": "",
    "weekly_email": "week shards dry_run on_unknown again early country_changed accept_drop",
}


def airflow_id(dag: str, own_id: Callable[[str], str]) -> str:
    """Return what a DAG is called in Airflow: only ours have the name of the installation."""
    return own_id(dag) if dag in DAG_PARAMS else dag


def started_by(run: Any) -> str | None:
    """Return whom Airflow names; of a dispatched run, who requested it, and not who dispatched."""
    name: str | None = run.triggering_user_name
    if run.run_type == "operator_triggered" and run.run_id.startswith(PREFIX):
        before, _, name = str(run.note).rpartition(REQUESTED_BY)
        return name if before else None
    return name


def require_known(given: Iterable[str] | None, params: Iterable[str]) -> None:
    """Raise UsageError for an unknown param: Airflow would ignore it."""
    known = dict.fromkeys(params)
    if unknown := sorted({*(given or ())} - known.keys()):
        names = some_of([single_line(name, _KEPT) for name in unknown])
        raise UsageError(f"{names}: no such param; expected {', '.join(known) or 'none'}")


@dataclass(frozen=True)
class NotRun:
    """Why a request is not run: it is refused, or in conflict with what is active under its key."""

    reason: str
    kind: Kind = Kind.REFUSED


@dataclass(frozen=True)
class RequestRules:
    """Which DAGs may be requested, how old a request may be, and the partitions of the topic."""

    dags: frozenset[str]
    max_age: timedelta
    partitions: int
    now: datetime


def parse(record: Record) -> Command | NotRun:
    """Return the command that a request becomes if it wins, or why it is refused."""
    for name, part in (("a key", record.key), ("a value", record.value)):
        if not part:
            return NotRun(f"expected {name}, found {'null' if part is None else 'an empty text'}")
        if len(part) > MOST_BYTES:
            return NotRun(f"expected {name} of at most {MOST_BYTES} bytes, found {len(part)}")
    try:
        key = (record.key or b"").decode()
        form = parse_json(record.value or b"")
    except ValueError as error:
        return NotRun(f"expected a key in UTF-8 and a value in JSON: {shown(error)}")
    return _request(key, form, record)


def _request(key: str, form: object, record: Record) -> Command | NotRun:
    if not isinstance(form, dict):
        return NotRun(f"expected an object, found {shown(form)}")
    dag, conf = form.get("Dag"), form.get("Conf", {})
    requested_by = form.get("RequestedBy", NOT_SAID)
    if not isinstance(dag, str) or not dag:
        found = shown(dag) if "Dag" in form else "none"
        return NotRun(f"expected Dag to be the name of a DAG, found {found}")
    if not isinstance(conf, dict):
        return NotRun(f"expected Conf to be an object, found {shown(conf)}")
    if not isinstance(requested_by, str):
        return NotRun(f"expected RequestedBy to be text, found {shown(requested_by)}")
    at_ms = int(instant_of(record.timestamp).timestamp() * 1000)
    by, name = requested_by or NOT_SAID, run_id(key, record.offset, at_ms)
    return Command(key, CommandState.ISSUED, dag, conf, by, record.offset, name)


def shown(value: object) -> str:
    """Return a wrong value for an error text: as JSON, shortened."""
    text = str(value) if isinstance(value, Exception) else json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


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
    numbers = [entry.command.request_offset for entry in entries if entry.command]
    last = max((number for number in numbers if number <= offset), default=None)
    # The records of the command that was in force when the request was decided.
    in_force = [one for one in entries if one.command and one.command.request_offset == last]
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
        return RequestStatus(ALREADY_RUNNING, why="its run has ended since")
    return RequestStatus(ALREADY_RUNNING, command=command, since=since)


@dataclass(frozen=True)
class AlreadyRunning:
    """The same is active already: the request changes nothing."""

    command: Command


@dataclass(frozen=True)
class Forward:
    """The record is in another partition than its key's: it is forwarded to that one."""

    partition: int


# A command is that of a request that wins: it is to be issued.
RequestDecision = Command | AlreadyRunning | NotRun | Forward


def decide_record(
    record: Record, active: Command | None, release: Release | None, rules: RequestRules
) -> RequestDecision:
    """Return the decision on a record.

    `active` is the command in force under its key; `release` says that its run has ended, and when:
    a request from before that counts as made during the run.
    """
    command = parse(record)
    if isinstance(command, NotRun):
        return command
    partition = partition_of(command.key, rules.partitions)
    if partition != record.partition:
        return Forward(partition)
    if command.dag not in rules.dags:
        known = ", ".join(sorted(rules.dags))
        return NotRun(f"{shown(command.dag)} cannot be requested, only {known}")
    at = instant_of(record.timestamp)
    if rules.now - at > rules.max_age:
        return NotRun(
            f"requested {at:%Y-%m-%d %H:%M} UTC, more than {rules.max_age.days} days ago"
            " (SHARDPOST_REQUEST_DAYS): send the request again"
        )
    if active is None or (release is not None and at >= release.at):
        return command
    if active.state is CommandState.UNREADABLE:
        return NotRun("the command that holds the key cannot be decoded", Kind.CONFLICT)
    if _payload(command) == _payload(active):
        return AlreadyRunning(active)
    found = f"run {active.run_id}, requested by {active.requested_by}, has another payload"
    return NotRun(found, Kind.CONFLICT)


def _payload(one: Command) -> str:
    """Return DAG and Conf as a canonical text: the same for the same JSON; 1 and true differ."""
    return json.dumps([one.dag, one.conf], sort_keys=True)
