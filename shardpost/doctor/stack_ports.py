"""The ports of the embedded stack: free, ours, or held by whom."""

from collections.abc import Iterator
from datetime import datetime

from shardpost.doctor.finding import Finding, error, ok
from shardpost.embedded import daemons, stack
from shardpost.settings import Settings

RESTART = "shardpost down && shardpost up"


def check(settings: Settings, _now: datetime) -> Iterator[Finding]:
    """Check the port of each part that Shardpost runs itself."""
    for part in stack.parts(settings):
        name = f"port of {part.name}"
        if daemons.port_is_free(part.port):
            yield ok(name, f"{part.port} is free")
            continue
        state = part.state(settings)
        if state["state"] == stack.DOWN:
            found = f"{part.port} is in use by {daemons.port_owner(part.port)}"
            cure = f"stop that process, or set {part.setting} to a free port"
            yield error(name, found, "free, or held by the stack of this SHARDPOST_HOME", cure)
        elif state["state"] == stack.UP:
            yield ok(name, f"{part.port} is held by {part.title} of this SHARDPOST_HOME")
        else:
            found = state.get("detail", state["state"])
            yield error(name, f"{part.title}: {found}", "an answer", RESTART)
