"""The doctor's checks of the tables: whether the newest snapshot is fresh and readable.

And what is firing, and the channels that tell it.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta

from deltalake.exceptions import DeltaError

from shardpost.alerts import history
from shardpost.alerts.channels import LOG, REFUSED_URL, channels
from shardpost.alerts.model.alert import EVENT, Firing
from shardpost.delta import object_store, snapshots, storage, stored_files
from shardpost.delta.query import table_errors
from shardpost.delta.snapshot import NEVER, Snapshot
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError, UsageError, first_line
from shardpost.holders import plausibility
from shardpost.installation import Installation
from shardpost.locks import refused_runs
from shardpost.rebuilds import registry
from shardpost.values.holding_rule import COUNTRY_UNKNOWN
from shardpost.watch.model import conditions
from shardpost.watch.model.doctor_finding import DoctorFinding, error, ok, refused, warning
from shardpost.wording import duration_text, some_of

# `clients` and `exchanges` keep a tombstone for a day: of what is gone then, nobody knows.
TOMBSTONES_KEPT = timedelta(days=1)
COMPACT = "shardpost compact"
LIST_ALERTS = "shardpost alerts list"
# The source of alerts that the doctor finds by itself (audit.check_topics).
KAFKA = "kafka"


def check_alerts(installation: Installation, now: datetime) -> Iterator[DoctorFinding]:
    """Check the URLs of the alert channels, and count what is firing."""
    known = channels(installation)
    refused_urls = [channel.name for channel in known if channel.service is None]
    if refused_urls:
        found = f"SHARDPOST_ALERTS: {', '.join(refused_urls)}: {REFUSED_URL}"
        yield error("alerts", found, "channels that work", "correct it; shardpost alerts test")
    else:
        names = ", ".join(channel.name for channel in known)
        yield ok("alerts", names or f"no channel (SHARDPOST_ALERTS): alerts are only in {LOG}")
    with suppress(storage.TableFormError), table_errors():  # that is a finding of `check_snapshot`
        yield _count_firing(history.list_firing(installation.tables), now)


def _count_firing(known: Iterable[Firing], now: datetime) -> DoctorFinding:
    """Count what is firing; what the audit found alone needs no attention: other checks have it."""
    firing = [one for one in known if one.ended_at is None and one.condition.source != EVENT]
    silenced = [one for one in firing if one.is_silenced(now)]
    names = ", ".join(one.condition.name for one in firing)
    found = f"{len(firing)} firing{f', {len(silenced)} of them silenced' if silenced else ''}"
    found = f"{found}: {names}" if firing else found
    if any(one.condition.source != KAFKA and not one.is_silenced(now) for one in firing):
        return warning("firing", found, "nothing, or silenced", LIST_ALERTS)
    known_here = "; each is silenced, or a finding of another check here"
    return ok("firing", found + known_here * bool(firing))


def check_snapshot(installation: Installation, now: datetime) -> Iterator[DoctorFinding]:
    """Check the newest snapshot, and whether the last run of a job was refused."""
    for job, one in refused_runs.refusals(installation.files, now).items():
        broken = conditions.refused(job, one.why)
        expected = f"a run that is not refused, unlike the run at {one.at:%Y-%m-%d %H:%M} UTC"
        name = broken.subject or "compaction"
        yield error(name, one.why, expected, f"docs/runbook.md, {broken.rule}")
    try:
        newest = snapshots.newest(installation.tables)
    except storage.TableFormError as problem:
        yield refused("tables", problem, "docs/operations.md: Tables of another release")
        return
    except (ShardpostError, DeltaError, OSError) as problem:
        said = object_store.describe_error(problem) or first_line(problem)
        yield _unreadable(installation.tables, [f"snapshots: {said}"])
        return
    if newest is None:
        found = f"none in {installation.tables.root}"
        yield warning("snapshot", found, "at least one", COMPACT)
        return
    yield check_freshness(newest, now, timedelta(seconds=installation.settings.mail_snapshot_age))
    problems = [
        f"{folder}@{version}: {why}"
        for name, version in newest.tables.items()
        for folder in (newest.folders.get(name, name),)
        if (why := table_problem(installation.tables, Table(name, (), folder=folder), version))
    ]
    if problems:
        yield _unreadable(installation.tables, problems)
        return
    yield ok("tables", f"all {len(newest.tables)} of snapshot {newest.number} can be read")
    try:
        registry.require_rule(installation, newest)
    except UsageError as problem:
        yield refused("who holds", problem)
    if without := plausibility.unknown_of(installation.tables, newest):
        expected = f"a Country in each one's record: positions on them count {COUNTRY_UNKNOWN}"
        topic = installation.kafka.topic("exchanges")
        cure = f"send their records to {topic}, or correct the positions"
        yield warning("exchanges", "; ".join(without.values()), expected, cure)


def check_freshness(snapshot: Snapshot, now: datetime, most: timedelta) -> DoctorFinding:
    """Check when the inputs were last read to their ends."""
    if snapshot.is_ahead(now):
        found = f"number {snapshot.number}, inputs read at {snapshot.looked_at:%Y-%m-%d %H:%M} UTC"
        expected = "a time before now: a clock was ahead, or this clock is behind"
        return error("snapshot", found, expected, f"correct the clock (`date -u`), then {COMPACT}")
    if snapshot.looked_at == NEVER:
        found = f"number {snapshot.number}, inputs never read to their ends"
        expected = "inputs that can be read to their ends (see `inputs`)"
        return error("snapshot", found, expected, COMPACT)
    age = now - snapshot.looked_at
    found = f"number {snapshot.number}, inputs read {duration_text(age)} ago"
    if age > TOMBSTONES_KEPT:
        expected = (
            f"at most {duration_text(TOMBSTONES_KEPT)}: tombstones may be lost unread after that"
        )
        return error("snapshot", found, expected, COMPACT)
    if age > most:
        expected = (
            f"at most {duration_text(most)} (SHARDPOST_MAIL_SNAPSHOT_AGE): else no e-mail is sent"
        )
        return warning("snapshot", found, expected, COMPACT)
    return ok("snapshot", found)


def table_problem(tables: storage.Tables, table: Table, version: int) -> str | None:
    """Return why a version of a table cannot be read, or None."""
    try:
        named = storage.sizes(tables, table, version)
        there = {file.path for file in stored_files.stored_files(tables, table)}
    except (ShardpostError, DeltaError, OSError) as problem:
        return object_store.describe_error(problem) or first_line(problem)
    missing = next((path for path in named if path not in there), None)
    return f"{storage.path_of(tables, table)}/{missing} is missing" if missing else None


def _unreadable(tables: storage.Tables, problems: list[str]) -> DoctorFinding:
    cure = f"restore {tables.root} from a backup: docs/operations.md"
    return error("tables", some_of(problems, 1), "readable tables", cure)
