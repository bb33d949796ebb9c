"""The status of a run request, as `runs request --wait` prints it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from shardpost.decisions.decision import Decision, Kind
from shardpost.run_requests.model.commands import Command, CommandEntry, CommandState

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
        """Whether the request is not run, and a person has to see why."""
        return self.kind in (Kind.CONFLICT, Kind.REFUSED)


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
    found = _in_force(offset, entries)
    command, since = (found[-1].command, found[0].at) if found else (None, None)
    if decisions:
        return RequestStatus(
            str(decisions[-1].kind), command=command, since=since, why=decisions[-1].why
        )
    if command is not None and command.request_offset == offset:
        # A command that is followed by a tombstone was started, and has ended.
        started = command.state is CommandState.STARTED or entries[-1] is not found[-1]
        return RequestStatus(WON, settled=started, command=command, since=since)
    if not is_processed:
        return None
    return RequestStatus(
        ALREADY_RUNNING, command=command, since=since, why=None if command else RUN_ENDED
    )


def _in_force(offset: int, entries: Sequence[CommandEntry]) -> list[CommandEntry]:
    """Return the records of the command that was in force when that request was decided."""
    numbers = [entry.command.request_offset for entry in entries if entry.command]
    last = max((number for number in numbers if number <= offset), default=None)
    return [entry for entry in entries if entry.command and entry.command.request_offset == last]
