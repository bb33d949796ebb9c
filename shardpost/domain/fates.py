"""What became of a run request, as its asker is told."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from shardpost.domain.decisions import Decision
from shardpost.domain.run_commands import Command, Entry, State

WON, ALREADY_RUNNING = "won", "already running"
UNKNOWN_RUN = "its run has ended since"


@dataclass(frozen=True)
class Fate:
    """One fate: won, already running, conflict or refused; `settled`: nothing more will happen.

    `command` is that of the run on its way: the request's own if it won.
    """

    kind: str
    settled: bool = True
    command: Command | None = None
    since: datetime | None = None
    why: str | None = None


def fate_of(
    offset: int, entries: Sequence[Entry], decisions: Sequence[Decision], *, is_taken: bool
) -> Fate | None:
    """Return the fate of the request at that offset; None while it is not taken up.

    `entries` are the records of its key in `run-commands`, oldest first; `decisions` those on this
    very request.
    """
    found = _in_force(offset, entries)
    command, since = (found[-1].command, found[0].at) if found else (None, None)
    if decisions:
        return Fate(str(decisions[-1].kind), command=command, since=since, why=decisions[-1].why)
    if command is not None and command.request_offset == offset:
        # A command that is followed by a tombstone has started, and ended since.
        started = command.state is State.STARTED or entries[-1] is not found[-1]
        return Fate(WON, settled=started, command=command, since=since)
    if not is_taken:
        return None
    return Fate(ALREADY_RUNNING, command=command, since=since, why=None if command else UNKNOWN_RUN)


def _in_force(offset: int, entries: Sequence[Entry]) -> list[Entry]:
    """Return the records of the command that was in force once that request was decided on."""
    numbers = [entry.command.request_offset for entry in entries if entry.command]
    last = max((number for number in numbers if number <= offset), default=None)
    return [entry for entry in entries if entry.command and entry.command.request_offset == last]
