"""What became of a run request, as its asker is told."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from shardpost.decisions.decision import Decision
from shardpost.run_requests.model.commands import Command, CommandEntry, CommandState

WON, ALREADY_RUNNING = "won", "already running"
UNKNOWN_RUN = "its run has ended since"


@dataclass(frozen=True)
class RequestStatus:
    """One fate: won, already running, conflict or refused; `settled`: nothing more will happen.

    `command` is that of the run on its way: the request's own if it won.
    """

    kind: str
    settled: bool = True
    command: Command | None = None
    since: datetime | None = None
    why: str | None = None


def status_of(
    offset: int, entries: Sequence[CommandEntry], decisions: Sequence[Decision], *, is_taken: bool
) -> RequestStatus | None:
    """Return the fate of the request at that offset; None while it is not taken up.

    `entries` are the records of its key in `run-commands`, oldest first; `decisions` those on this
    very request.
    """
    found = _in_force(offset, entries)
    command, since = (found[-1].command, found[0].at) if found else (None, None)
    if decisions:
        return RequestStatus(
            str(decisions[-1].kind), command=command, since=since, why=decisions[-1].why
        )
    if command is not None and command.request_offset == offset:
        # A command that is followed by a tombstone has started, and ended since.
        started = command.state is CommandState.STARTED or entries[-1] is not found[-1]
        return RequestStatus(WON, settled=started, command=command, since=since)
    if not is_taken:
        return None
    return RequestStatus(
        ALREADY_RUNNING, command=command, since=since, why=None if command else UNKNOWN_RUN
    )


def _in_force(offset: int, entries: Sequence[CommandEntry]) -> list[CommandEntry]:
    """Return the records of the command that was in force once that request was decided on."""
    numbers = [entry.command.request_offset for entry in entries if entry.command]
    last = max((number for number in numbers if number <= offset), default=None)
    return [entry for entry in entries if entry.command and entry.command.request_offset == last]
