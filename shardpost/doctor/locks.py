"""The locks of running jobs: who holds which, since when. A lock of a dead process is free."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from shardpost.doctor.finding import Finding, ok, warning
from shardpost.embedded.daemons import stat_of
from shardpost.locks import holders
from shardpost.settings import Settings

# Longer than any job should take: a task of Airflow is killed after twelve hours.
LONG = timedelta(hours=12)
STOPPED = "Tt"


def check(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Report each lock that is held now."""
    held = dict(holders(settings))
    if not held:
        yield ok("locks", "none is held")
    for path, pid in held.items():
        yield check_lock(path, pid, now)


def check_lock(path: Path, pid: int, now: datetime) -> Finding:
    """Check one lock that a process holds."""
    name = f"lock {path.name}"
    since = _since(path)
    found = f"held by pid {pid}" + (f" since {since:%Y-%m-%d %H:%M} UTC" if since else "")
    stat = stat_of(pid)
    if stat and stat.state in STOPPED:
        found += ", which is stopped"
        return warning(name, found, "a running process", f"kill -CONT {pid} (or -KILL)")
    if since and now - since > LONG:
        cure = f"see what it does (ps -p {pid} -o args), and if it is stuck: kill {pid}"
        return warning(name, found, f"at most {LONG.total_seconds() / 3600:g} hours", cure)
    return ok(name, found)


def _since(path: Path) -> datetime | None:
    try:
        form: Mapping[str, str] = json.loads(path.read_text())
        return datetime.fromisoformat(form["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
