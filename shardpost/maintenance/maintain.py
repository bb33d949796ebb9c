"""The maintenance of the tables: remove expired data, while everything else continues.

A run that is interrupted at any point has only kept too much. Snapshots are removed first, since
nobody is given one whose files may be missing; then, table by table, the files and the log entries
that no kept version needs. What is removed is older than anything a running compaction, a freeze or
a reader uses, so no lock keeps them waiting. Unreferenced folders are removed last, under the lock
of rebuilds. One maintenance runs at a time.

The tables are folded (holders/folding.py), unless a compaction takes too long, or is needed for it.
Superseded records are deleted from the histories after SHARDPOST_HISTORY_DAYS; audiences, weeks and
letters have ages of their own.
"""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from shardpost.dead_letters import removal
from shardpost.dead_letters.letters_table import origins
from shardpost.delta import snapshots, stored_files
from shardpost.delta.query import table_errors
from shardpost.delta.snapshot_retention import kept_snapshots, latest_certain_time
from shardpost.delta.storage import Tables
from shardpost.errors import ShardpostError
from shardpost.holders import pruned_histories
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.folding import Folding
from shardpost.installation import Installation
from shardpost.locks import refused_runs
from shardpost.locks.locks import LockedError, after_running, postponing
from shardpost.logs import step
from shardpost.maintenance.model.plan import Plan, TablePlan
from shardpost.maintenance.removable_files import plan
from shardpost.rebuilds.drop import remove_unnamed, require_none
from shardpost.rebuilds.registry import rebuilding
from shardpost.topics import guards
from shardpost.weekly_email import week_retention
from shardpost.wording import in_bytes

STAYS = "old superseded records are kept"


@dataclass
class PrunedRecords:
    """How many rows, by table, and about how many bytes were removed, or would be by `dry_run`.

    `history_from` is the time from which on all is kept; None if nothing is removed.
    """

    dry_run: bool
    history_from: datetime | None = None
    rows: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    postponed: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {name: value for name, value in vars(self).items() if name != "dry_run"}

    def lines(self) -> list[str]:
        """Return it in words."""
        lines = [f"records: pruned in part, or not now: {why}" for why in self.postponed.values()]
        if self.history_from is None:
            return [*lines, "records: nothing to prune"]
        rows = ", ".join(f"{count} of {table}" for table, count in self.rows.items())
        verb = "would be" if self.dry_run or self.postponed else "are"
        before = f"{self.history_from:%Y-%m-%d %H:%M} UTC"
        line = f"records: {rows} {verb} deleted from the histories, superseded before {before}"
        return [f"{line}; {in_bytes(self.bytes)}", *lines]


def prune_old(installation: Installation, now: datetime, *, dry_run: bool = False) -> PrunedRecords:
    """Prune old superseded records in a snapshot of its own; nothing if that is not set.

    Postponed beside a compaction that takes longer than `lock_wait`, and while the tables of a
    rebuild are beside those in use. How old it is does not trust the clock alone.
    """
    result = PrunedRecords(dry_run)
    newest = snapshots.newest(installation.tables)
    if installation.settings.history_days is None or newest is None:
        return result
    with table_errors():
        # By the snapshots that are kept by their age. Those before, which a frozen week keeps, are
        # weeks apart, of which a day counts each.
        committed = snapshots.committed_times(installation.tables)
        young = kept_snapshots(committed.items(), now, installation.tables.snapshot_days)
        certain = latest_certain_time(((number, committed[number]) for number in young), now)
        at = certain - timedelta(days=installation.settings.history_days)
        topics = {name: installation.kafka.topic(name) for name in pruned_histories.PRUNED}
        of_letters = {name: origins(installation, topic) for name, topic in topics.items()}
        step("find old records")
        pruning = pruned_histories.find_superseded(installation, newest, at, of_letters)
        if not pruning.rows:
            return result
        result.history_from, result.rows, result.bytes = at, pruning.rows, pruning.bytes
        # No tables may be beside those in use, nor come there meanwhile.
        lock = rebuilding(installation.files, wait=installation.files.lock_wait)
        with postponing("histories", result.postponed), nullcontext() if dry_run else lock:
            require_none(installation.tables, STAYS)
            if not dry_run:
                step("prune records")
                pruned_histories.prune(installation, pruning, now)
    return result


LOCK = "maintain_tables"

log = logging.getLogger(__name__)


def maintain(installation: Installation, now: datetime, *, dry_run: bool = False) -> Plan:
    """Remove what is expired at a time, and return it; with `dry_run`, remove nothing.

    ShardpostError if the tables cannot be read or written, LockedError beside another maintenance.
    """
    with table_errors():
        if dry_run:
            return plan(installation, now)
        with guards.run(installation, LOCK):
            planned = plan(installation, now)
            if planned.dropped:
                planned = _thinned(installation, planned, now)
            _remove_files(installation.tables, planned)
            if any(table.is_whole for table in planned.tables):
                step("remove folders")
                try:  # those that still are unnamed, and beside a run of a rebuild none
                    with rebuilding(installation.files):
                        remove_unnamed(installation.tables)
                except LockedError as error:
                    why = error.holder
                    kept = [
                        TablePlan(t.table, error=why) if t.is_whole else t for t in planned.tables
                    ]
                    planned = replace(planned, tables=kept)
            step("maintained")
            return planned


def _thinned(installation: Installation, planned: Plan, now: datetime) -> Plan:
    """Remove the rows that are planned to be; return what may be removed then.

    That writes a file. On a full disk there may be room for it when all has gone that no row needs;
    if there is none even then, no row is removed, and that was all.
    """
    step("thin snapshots")
    try:
        _drop(installation.tables, planned)
    except ShardpostError as error:
        log.warning("%s: retrying after removing files that no snapshot needs", error)
        without = plan(installation, now, thin=False)
        _remove_files(installation.tables, without)
        try:
            _drop(installation.tables, planned)
        except ShardpostError as again:
            return replace(without, unknown=str(again))
    return planned


def _drop(tables: Tables, planned: Plan) -> None:
    with table_errors():
        snapshots.drop(tables, planned.dropped)


def _remove_files(tables: Tables, found: Plan) -> None:
    for planned in found.tables:
        for what, files in (("files", planned.files), ("log entries", planned.entries)):
            if files and not planned.is_whole:
                step(f"remove {what} of {planned.table.path}")
                stored_files.remove(tables, planned.table, [file.path for file in files])


# What was done for the age of one thing.
Aged = week_retention.OldWeeks | removal.OldLetters | PrunedRecords


@dataclass
class Maintenance:
    """What was done, or with a dry run would be; `errors` are why something was not."""

    tables: Plan
    weeks: dict[str, Aged] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        aged = {name: one.as_json() for name, one in self.weeks.items()}
        return self.tables.as_json() | aged | {"errors": self.errors}

    def lines(self, days: int) -> list[str]:
        """Return it in words; `days` is SHARDPOST_SNAPSHOT_DAYS."""
        aged = (line for done in self.weeks.values() for line in done.lines())
        return [*aged, *self.tables.lines(days)]


def maintain_all(
    installation: Installation, now: datetime, *, dry_run: bool = False
) -> Maintenance:
    """Erase old audiences, close old weeks, remove old letters and records, and unneeded files.

    One that cannot be done keeps none of the others from being done: `errors` says why.
    """
    if dry_run:
        return _maintain_all(installation, now, dry_run=True)
    with refused_runs.noting(installation.files, LOCK):
        done = _maintain_all(installation, now, dry_run=False)
    refused_runs.note(installation.files, LOCK, "; ".join(done.errors) or None)
    return done


def _maintain_all(installation: Installation, now: datetime, *, dry_run: bool) -> Maintenance:
    done: dict[str, Aged] = {}
    errors: list[str] = []

    def do(name: str, work: Callable[..., Aged]) -> None:
        try:
            one = work(installation, now, dry_run=dry_run)
        except ShardpostError as error:
            errors.append(f"{name}: {error}")
        else:
            done[name] = one
            errors.extend(f"{name}: {week}: {why}" for week, why in one.postponed.items())

    do("audiences", week_retention.erase_old_audiences)
    do("weeks", week_retention.close_old_weeks)
    do("letters", removal.remove_old)
    if installation.settings.history_days is not None:
        do("records", prune_old)
    if not dry_run:
        left, alone = dict[str, str](), after_running(installation.files, COMPACT_POSITIONS.name)
        with postponing("fold", left), table_errors(), alone:
            last = snapshots.newest(installation.tables)
            folding = last and Folding(installation.tables, last)
            if folding and not folding.needs_spark:
                folding.fold_if_due(now, installation.settings.fold_age)
        errors += (f"{name}: {why}" for name, why in left.items())
    tables = maintain(installation, now, dry_run=dry_run)
    return Maintenance(tables, done, [*errors, *tables.errors])
