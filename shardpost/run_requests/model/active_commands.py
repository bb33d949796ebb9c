"""The commands in force in one partition, and what is to be done next about each."""

from collections.abc import Iterable

from shardpost.run_requests.model.commands import (
    Command,
    CommandEntry,
    CommandState,
    NextAction,
    Release,
    Start,
    fold,
)


class ActiveCommands:
    """The commands in force, by run key.

    A command has no next action as long as it is not known how its run is in Airflow.
    """

    def __init__(self, entries: Iterable[CommandEntry]) -> None:
        folded = fold(entries)
        self._commands = {key: entry.command for key, entry in folded.items() if entry.command}
        self._actions: dict[str, NextAction] = {}

    def all(self) -> list[Command]:
        """Return the commands in force."""
        return list(self._commands.values())

    def get(self, key: str) -> Command | None:
        """Return the command in force under a key."""
        return self._commands.get(key)

    def plan(self, command: Command, action: NextAction) -> None:
        """Set the next action for a command."""
        self._actions[command.key] = action

    def planned(self) -> list[tuple[Command, NextAction]]:
        """Return the commands that have a next action, with it."""
        return [(self._commands[key], action) for key, action in self._actions.items()]

    def release_of(self, key: str) -> Release | None:
        """Return the release of a key whose run has ended; None where none has."""
        action = self._actions.get(key)
        return action if isinstance(action, Release) else None

    def issue(self, command: Command) -> None:
        """Put a new command in force; it is to be started."""
        self._commands[command.key] = command
        self._actions[command.key] = Start()

    def mark_started(self, command: Command) -> Command:
        """Put the started command in the place of the issued one, and return it."""
        self._commands[command.key] = command.started
        del self._actions[command.key]
        return command.started

    def remove(self, key: str) -> None:
        """Free a key."""
        del self._commands[key]
        self._actions.pop(key, None)

    @property
    def waiting(self) -> int:
        """How many commands are issued and not started."""
        return sum(command.state is CommandState.ISSUED for command in self._commands.values())
