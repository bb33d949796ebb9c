"""What `runs list` prints: the commands in force, then the conflicts of the last days."""

import json
from datetime import datetime, timedelta
from typing import TypedDict

from shardpost.decisions import decisions_topic
from shardpost.decisions.decision import Decision, Kind
from shardpost.run_requests import request_topics
from shardpost.run_requests.model.commands import Command, CommandEntry, fold
from shardpost.settings import Settings


class RunRow(TypedDict):
    """One command or conflict, as `runs list --json` prints it; a conflict has no run."""

    key: str
    dag: str | None
    run_id: str | None
    state: str
    requested_by: str | None
    since: str


def list_runs(settings: Settings, now: datetime) -> list[RunRow]:
    """Return the commands in force, by key, then the conflicts, oldest first.

    Conflicts are listed for SHARDPOST_REQUEST_DAYS, as long as a request is valid.
    """
    oldest = now - timedelta(days=settings.request_days)
    conflicts = [
        _conflict_row(decision, headers["request"])
        for decision, headers in decisions_topic.list_since(settings, oldest)
        if decision.kind is Kind.CONFLICT and "request" in headers
    ]
    commands = [
        _command_row(entry, entry.command)
        for entry in commands_in_force(settings)
        if entry.command is not None
    ]
    return [*commands, *sorted(conflicts, key=lambda row: row["since"])]


def commands_in_force(settings: Settings) -> list[CommandEntry]:
    """Return the last record of each key that is not free, by key."""
    found = [
        entry
        for partition in range(request_topics.partitions(settings))
        for entry in fold(request_topics.command_entries(settings, partition)).values()
    ]
    return sorted(found, key=lambda entry: entry.key)


def _command_row(entry: CommandEntry, command: Command) -> RunRow:
    return {
        "key": entry.key,
        "dag": command.dag,
        "run_id": command.run_id,
        "state": str(command.state),
        "requested_by": command.requested_by,
        "since": entry.at.isoformat(),
    }


def _conflict_row(decision: Decision, request: bytes) -> RunRow:
    form = json.loads(request)  # only a request that can be decoded is a conflict
    return {
        "key": decision.about.decode(),
        "dag": form["Dag"],
        "run_id": None,
        "state": str(decision.kind),
        "requested_by": form.get("RequestedBy"),
        "since": decision.when.isoformat(),
    }
