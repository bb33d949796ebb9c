"""Run commands: how many are in force, and which never end."""

from collections import Counter
from datetime import datetime, timedelta

from shardpost.run_requests.model.commands import CommandEntry, CommandState
from shardpost.run_requests.request_client import commands_in_force
from shardpost.settings import Settings
from shardpost.watch.model.found import Found
from shardpost.watch.model.rules import RUN_AGE


def look(settings: Settings, now: datetime) -> Found:
    """Measure the commands that are in force."""
    found = Found()
    entries = [entry for entry in commands_in_force(settings) if entry.command is not None]
    counts = Counter(entry.command.state for entry in entries if entry.command)
    for state in CommandState:
        found.measure("runs", counts[state], state=str(state))
    if entries:
        found.age("run_age_seconds", min(entry.at for entry in entries), now)
    for entry in entries:
        if now - entry.at > timedelta(seconds=settings.watch_run_age):
            found.conditions.append(RUN_AGE.broken(entry.key, _text(entry, settings)))
    return found


def _text(entry: CommandEntry, settings: Settings) -> str:
    command = entry.command
    run = command.run_id or "a run that is not known yet" if command else ""
    return (
        f"{run} has been in force since {entry.at:%Y-%m-%d %H:%M:%S} UTC: expected at most"
        f" {settings.watch_run_age:g} s (SHARDPOST_WATCH_RUN_AGE); `shardpost runs list` has all"
    )
