"""The newest snapshot: how fresh it is, and whether its tables can be read."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from shardpost.delta import snapshots
from shardpost.delta.snapshot import NEVER, Snapshot
from shardpost.doctor.finding import Finding, error, ok, warning
from shardpost.errors import ShardpostError
from shardpost.settings import Settings

# `clients` and `exchanges` keep a tombstone for a day: of what is gone then, nobody knows.
TOMBSTONES_KEPT = timedelta(days=1)
COMPACT = "shardpost compact"


def check(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Check the newest snapshot."""
    try:
        newest = snapshots.newest(settings)
    except (ShardpostError, DeltaError, OSError) as problem:
        yield _unreadable(settings, [f"snapshots: {_first_line(problem)}"])
        return
    if newest is None:
        found = f"none in {settings.tables_root}"
        yield warning("snapshot", found, "at least one", COMPACT)
        return
    yield check_freshness(newest, now, timedelta(seconds=settings.mail_snapshot_age))
    yield _check_tables(settings, newest)


def check_freshness(snapshot: Snapshot, now: datetime, most: timedelta) -> Finding:
    """Check when the inputs were last found to hold no more."""
    if snapshot.is_ahead(now):
        found = f"number {snapshot.number}, looked at {snapshot.looked_at:%Y-%m-%d %H:%M} UTC"
        expected = "a time before now: a clock was ahead, or this one is behind"
        return error("snapshot", found, expected, f"correct the clock (`date -u`), then {COMPACT}")
    if snapshot.looked_at == NEVER:
        found = f"number {snapshot.number}, never looked at with nothing left unread"
        expected = "inputs that can be read to their ends: see `inputs`"
        return error("snapshot", found, expected, COMPACT)
    age = now - snapshot.looked_at
    found = f"number {snapshot.number}, looked at {_in_words(age)} ago"
    if age > TOMBSTONES_KEPT:
        expected = f"at most {_in_words(TOMBSTONES_KEPT)}: tombstones may be lost unread after that"
        return error("snapshot", found, expected, COMPACT)
    if age > most:
        expected = f"at most {_in_words(most)} (SHARDPOST_MAIL_SNAPSHOT_AGE): else nobody is mailed"
        return warning("snapshot", found, expected, COMPACT)
    return ok("snapshot", found)


def _in_words(age: timedelta) -> str:
    seconds = max(0.0, age.total_seconds())
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} hours"


def _check_tables(settings: Settings, snapshot: Snapshot) -> Finding:
    """Check that each table has the snapshot's version, and on a disk, all its files."""
    problems = [
        f"{folder}@{version}: {problem}"
        for name, version in snapshot.tables.items()
        for folder in (snapshot.folders.get(name, name),)
        if (problem := table_problem(f"{settings.tables_root}/{folder}", version))
    ]
    if problems:
        return _unreadable(settings, problems)
    return ok("tables", f"all {len(snapshot.tables)} of snapshot {snapshot.number} can be read")


def table_problem(path: str, version: int) -> str | None:
    """Return why a version of a table cannot be read, or None."""
    try:
        table = DeltaTable(path, version=version)
    except (DeltaError, OSError) as problem:
        return _first_line(problem)
    if "://" in path:
        return None
    files = (Path(unquote(urlsplit(uri).path)) for uri in table.file_uris())
    missing = next((file for file in files if not file.exists()), None)
    return f"{missing} is missing" if missing else None


def _first_line(problem: Exception) -> str:
    return next(iter(str(problem).splitlines()), type(problem).__name__)


def _unreadable(settings: Settings, problems: list[str]) -> Finding:
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    cure = f"restore {settings.tables_root} from a backup: docs/what-next.md"
    return error("tables", f"{problems[0]}{more}", "tables that can be read", cure)
