"""What `runs list` shows: the commands in force, and the conflicts that nobody has seen to."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from shardpost.decisions import decisions_topic
from shardpost.decisions.decision import Decision, Kind
from shardpost.run_requests import request_topics
from shardpost.run_requests.model.commands import CommandEntry, fold
from shardpost.settings import Settings


def listed(settings: Settings) -> list[dict[str, Any]]:
    """Return rows {"key", "dag", "run_id", "state", "requested_by", "since"}.

    First the commands, by key; then the conflicts of as many days as a request counts, oldest
    first, without a run.
    """
    oldest = datetime.now(UTC) - timedelta(days=settings.request_days)
    conflicts = [
        _conflict(decision, headers["request"])
        for decision, headers in decisions_topic.list_all(settings)
        if decision.kind is Kind.CONFLICT and decision.when >= oldest and "request" in headers
    ]
    return [*map(_command, held(settings)), *sorted(conflicts, key=lambda row: row["since"])]


def held(settings: Settings) -> list[CommandEntry]:
    """Return the commands in force, by key."""
    found = [
        entry
        for partition in range(request_topics.partitions(settings))
        for entry in fold(request_topics.command_entries(settings, partition)).values()
    ]
    return sorted(found, key=lambda entry: entry.key)


def _command(entry: CommandEntry) -> dict[str, Any]:
    assert entry.command is not None  # noqa: S101 - a fold keeps no others
    return {
        "key": entry.key,
        "dag": entry.command.dag,
        "run_id": entry.command.run_id,
        "state": str(entry.command.state),
        "requested_by": entry.command.requested_by,
        "since": entry.at.isoformat(),
    }


def _conflict(decision: Decision, request: bytes) -> dict[str, Any]:
    asked = json.loads(request)  # a conflict's request could be read
    return {
        "key": decision.about.decode(),
        "dag": asked["Dag"],
        "run_id": None,
        "state": str(decision.kind),
        "requested_by": asked.get("RequestedBy"),
        "since": decision.when.isoformat(),
    }
