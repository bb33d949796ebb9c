"""Run commands: what runs under which key, as the topic `run-commands` has it.

Its key is the run key; its value {"State", "Dag", "Conf", "RequestedBy", "RequestOffset", "RunId"};
a tombstone means that the key is free. A command is `issued`, then `started`: one that is issued
and unknown to Airflow was never started; one that is started and unknown was deleted.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

LONG_AGO = datetime.min.replace(tzinfo=UTC)


class CommandState(StrEnum):
    """How far a command has come."""

    ISSUED = "issued"
    STARTED = "started"
    UNREADABLE = "unreadable"  # written by another program: it holds its key until it is released


@dataclass(frozen=True)
class Command:
    """What runs under a key, or is about to run."""

    key: str
    state: CommandState
    dag: str
    conf: dict[str, Any]
    requested_by: str
    request_offset: int
    run_id: str

    def value(self) -> bytes:
        """Return the record's value."""
        form = {
            "State": str(self.state),
            "Dag": self.dag,
            "Conf": self.conf,
            "RequestedBy": self.requested_by,
            "RequestOffset": self.request_offset,
            "RunId": self.run_id,
        }
        return json.dumps(form, ensure_ascii=False, separators=(",", ":")).encode()

    def request(self) -> bytes:
        """Return the value of a request for the same run."""
        form = {"Dag": self.dag, "Conf": self.conf, "RequestedBy": self.requested_by}
        return json.dumps(form, ensure_ascii=False, separators=(",", ":")).encode()

    @property
    def started(self) -> "Command":
        """The same command, once Airflow has its run."""
        return replace(self, state=CommandState.STARTED)


@dataclass(frozen=True)
class CommandEntry:
    """One record of `run-commands`; no command is a tombstone. `at`: the record's timestamp."""

    key: str
    command: Command | None
    at: datetime


def decode(key: bytes | None, value: bytes | None, at: datetime) -> CommandEntry | None:
    """Return the entry of a record; None for a key that is null, empty or not UTF-8.

    A value that cannot be decoded holds its key: to start another run beside it might be to start
    the same run twice.
    """
    try:
        name = (key or b"").decode()
    except UnicodeDecodeError:
        return None
    if not name or value is None:
        return CommandEntry(name, None, at) if name else None
    try:
        form = json.loads(value)
        state = CommandState(form["State"])
        texts = (form["RequestedBy"], int(form["RequestOffset"]), form["RunId"])
        return CommandEntry(name, Command(name, state, form["Dag"], dict(form["Conf"]), *texts), at)
    except (ValueError, KeyError, TypeError, RecursionError):
        return CommandEntry(name, Command(name, CommandState.UNREADABLE, "?", {}, "?", -1, "?"), at)


def fold(entries: Iterable[CommandEntry]) -> dict[str, CommandEntry]:
    """Return the last entry of each key that is not free."""
    last: dict[str, CommandEntry] = {}
    for entry in entries:
        if entry.command is None:
            last.pop(entry.key, None)
        else:
            last[entry.key] = entry
    return last


@dataclass(frozen=True)
class AirflowRun:
    """A run as Airflow has it: its state, and when it ended, if it has."""

    state: str
    ended_at: datetime | None = None


@dataclass(frozen=True)
class Start:
    """Airflow does not know the run yet: start it."""


@dataclass(frozen=True)
class NoteStarted:
    """Airflow has the run, and the command does not say so yet."""


@dataclass(frozen=True)
class Release:
    """The key is free for requests of that instant or later.

    `deleted`: the run was deleted in Airflow, it is unknown when, so any request may be the next.
    """

    at: datetime
    why: str
    deleted: bool = False


@dataclass(frozen=True)
class Keep:
    """Nothing is to be done."""


NextAction = Start | NoteStarted | Release | Keep


def next_action(command: Command, run: AirflowRun | None) -> NextAction:
    """Return what to do next about a command; `run` is None where Airflow does not know it."""
    if command.state is CommandState.UNREADABLE:
        return Keep()
    if run is None:
        if command.state is CommandState.ISSUED:
            return Start()
        return Release(LONG_AGO, f"run {command.run_id} was deleted in Airflow", deleted=True)
    if run.ended_at is not None:
        millisecond = run.ended_at.microsecond // 1000 * 1000  # a record's time has no more
        ended = run.ended_at.replace(microsecond=millisecond)
        return Release(ended, f"run {command.run_id} ended: {run.state}")
    return NoteStarted() if command.state is CommandState.ISSUED else Keep()
