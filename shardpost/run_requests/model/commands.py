"""Run commands: what runs under which key, as the topic `run-commands` has it, and what is next.

Its key is the run key; its value {"State", "Dag", "Conf", "RequestedBy", "RequestOffset", "RunId"};
a tombstone means that the key is free. A command is `issued`, then `started`: one that is issued
and unknown to Airflow was never started; one that is started and unknown was deleted.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum, StrEnum
from functools import partial
from math import isfinite
from typing import Any

from shardpost.kafka.records import utf8_text
from shardpost.wording import distinct

LONG_AGO = datetime.min.replace(tzinfo=UTC)
# Levels of a request or a command: params have a few, and Python gives up at 1,000 calls, of which
# whoever encodes the value again has made some already.
MOST_NESTED = 100
LONGEST_NUMBER = 40  # of what an error shows of one
_TOO_DEEP = f"expected at most {MOST_NESTED} levels of objects and arrays, found more"


def parse_json(raw: bytes) -> Any:
    """Return a value in JSON that others wrote; ValueError for what cannot be passed on.

    Besides what is no JSON in UTF-8: a number that JSON does not have, or that loses digits or its
    sign in Airflow, a name that an object has twice, half of a surrogate pair, and what is nested
    deeper than MOST_NESTED.
    """
    try:
        form = json.loads(
            raw.decode(),  # of bytes, it would guess UTF-16
            object_pairs_hook=distinct,
            parse_float=_exact,
            parse_int=partial(_exact, kind=int),
        )
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = [form] if isinstance(form, dict | list) else []
    for _ in range(MOST_NESTED):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    if level:
        raise ValueError(_TOO_DEEP)
    json.dumps(form, ensure_ascii=False, allow_nan=False).encode()
    return form


def _exact(text: str, kind: Callable[[str], float] = float) -> float:
    number = float(text)
    try:
        is_kept = isfinite(number) and Decimal(repr(number)) == Decimal(text) and text != "-0"
    except InvalidOperation:  # of an absurd exponent
        is_kept = False
    if not is_kept:
        found = text if len(text) <= LONGEST_NUMBER else f"{text[:LONGEST_NUMBER]}…"
        raise ValueError(f"expected a number that fits a double, found {found}: send it as text")
    return kind(text)


class CommandState(StrEnum):
    """The progress of a command."""

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
        more = {"RequestOffset": self.request_offset, "RunId": self.run_id}
        return _encoded({"State": str(self.state), **self._request_form(), **more})

    def request(self) -> bytes:
        """Return the value of a request for the same run."""
        return _encoded(self._request_form())

    def _request_form(self) -> dict[str, Any]:
        return {"Dag": self.dag, "Conf": self.conf, "RequestedBy": self.requested_by}


def _encoded(form: dict[str, Any]) -> bytes:
    return json.dumps(form, ensure_ascii=False, separators=(",", ":")).encode()


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
    if not (name := utf8_text(key)):
        return None
    if value is None:
        return CommandEntry(name, None, at)
    try:
        return CommandEntry(name, _command(name, parse_json(value)), at)
    except (ValueError, KeyError, TypeError):
        return CommandEntry(name, Command(name, CommandState.UNREADABLE, "?", {}, "?", -1, "?"), at)


def _command(key: str, form: dict[str, Any]) -> Command:
    """Return the command of a value; ValueError, KeyError or TypeError if it is none of ours."""
    state, conf, offset = CommandState(form["State"]), form["Conf"], form["RequestOffset"]
    dag, requested_by, run = texts = (form["Dag"], form["RequestedBy"], form["RunId"])
    is_ours = isinstance(conf, dict) and type(offset) is int
    if not is_ours or not all(isinstance(text, str) for text in texts):
        raise TypeError
    return Command(key, state, dag, conf, requested_by, offset, run)


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


class NextStep(Enum):
    """The next step for a command whose key is not free yet."""

    START = "the run is not in Airflow yet"
    NOTE_STARTED = "the run is in Airflow, but the command is not updated yet"
    KEEP = "nothing to do"


@dataclass(frozen=True)
class Release:
    """The key is free for requests of that instant or later.

    `deleted`: the run was deleted in Airflow, it is unknown when, so any request may be the next.
    """

    at: datetime
    why: str
    deleted: bool = False


NextAction = NextStep | Release


def next_action(command: Command, run: AirflowRun | None) -> NextAction:
    """Return what to do next about a command; `run` is None where Airflow does not know it."""
    if command.state is CommandState.UNREADABLE:
        return NextStep.KEEP
    if run is None:
        if command.state is CommandState.ISSUED:
            return NextStep.START
        return Release(LONG_AGO, f"run {command.run_id} was deleted in Airflow", deleted=True)
    if run.ended_at is not None:
        millisecond = run.ended_at.microsecond // 1000 * 1000  # a record's time has no more
        ended = run.ended_at.replace(microsecond=millisecond)
        return Release(ended, f"run {command.run_id} ended: {run.state}")
    return NextStep.NOTE_STARTED if command.state is CommandState.ISSUED else NextStep.KEEP


@dataclass
class DispatchCounts:
    """What a dispatch did, in numbers; as JSON the result of `runs dispatch`.

    `waiting`: commands that are issued and not started; `unseen`: runs whose state Airflow did not
    return; `lost`: offsets that Kafka deleted before they were read, as text.
    """

    issued: int = 0
    started: int = 0
    already_running: int = 0
    conflicts: int = 0
    refused: int = 0
    released: int = 0
    forwarded: int = 0
    waiting: int = 0
    unseen: int = 0
    lost: list[str] = field(default_factory=list)

    def add(self, other: "DispatchCounts") -> None:
        """Add the counts of another partition."""
        for name, number in vars(other).items():
            setattr(self, name, getattr(self, name) + number)

    def in_words(self) -> str:
        """Return the counts as one line of text."""
        text = (
            f"{self.issued} issued, {self.started} started, {self.already_running} already running,"
            f" {self.conflicts} conflicts, {self.refused} refused, {self.released} released"
        )
        if not self.lost:
            return text
        return f"{text}; deleted by Kafka before they were read: {', '.join(self.lost)}"
