"""What a maintenance would remove now; nothing is changed.

The files of any of some versions are found by one pass over the log: opening each version gives the
same result, but reads up to ten commits and a checkpoint for each.

The files of a snapshot are removed an hour after it was last offered: `kept_snapshots` is applied
as of an hour ago, which keeps everything that was offered since.
"""

import json
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from shardpost.delta import snapshot, snapshots, storage, stored_files
from shardpost.delta.snapshot_retention import GRACE, kept_snapshots
from shardpost.delta.storage import Tables
from shardpost.delta.table import StoredFile, Table
from shardpost.errors import ShardpostError, first_line
from shardpost.holders.model.view_tables import VIEW
from shardpost.holders.share_holders_topic import noted_snapshots
from shardpost.installation import Installation
from shardpost.maintenance import stored_tables
from shardpost.maintenance.model.plan import (
    LOG,
    NeededFiles,
    Plan,
    TablePlan,
    below_version,
    is_needed,
    log_entries,
    unneeded_entries,
)
from shardpost.rebuilds import registry
from shardpost.rebuilds.drop import unnamed
from shardpost.rebuilds.model.rebuild import State
from shardpost.tables import OTHERS
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.week_tables import FROZEN_WEEKS
from shardpost.wording import counted

# A checkpoint is read instead of more commits than that.
COMMITS_IN_PLACE_OF_A_CHECKPOINT = 20


def needed_paths(
    tables: Tables,
    table: Table,
    files: Collection[StoredFile],
    versions: Collection[int],
    newest: DeltaTable | None = None,
) -> set[str]:
    """Return the paths of all files of some versions of a table; `files` are those of its log.

    `newest` is the newest of these versions, where it has been opened. ShardpostError, an OSError
    or an ArrowException if its log has not all of these versions.
    """
    if not versions:
        return set()
    log = _Log(tables, table, files)
    needed = NeededFiles(versions)
    at = -1
    for version in sorted(versions):
        at = log.replay(needed, at, version)
    live = needed.live
    if newest is None or newest.version() != at:
        newest = storage.opened(tables, table, at)
    if live != {*storage.sizes_of(newest)}:
        raise ShardpostError(
            f"{table.path}: the log has {counted(len(live), 'file')} for version {at}, which"
            " differ from the files of the opened table"
        )
    return needed.end()


class _Log:
    """The commits and checkpoints of a table's log, as they are on the disk."""

    def __init__(self, tables: Tables, table: Table, files: Collection[StoredFile]) -> None:
        self._system, self._root = stored_files.folder(tables, table)
        self._table = table
        self.commits, self._checkpoints = log_entries(files)

    def replay(self, needed: NeededFiles, at: int, version: int) -> int:
        """Replay what is between two versions, and return the latter."""
        checkpoint = max((number for number in self._checkpoints if number <= version), default=-1)
        # Commits are read in place of a checkpoint if they are few, and all are there.
        are_few = checkpoint - at <= COMMITS_IN_PLACE_OF_A_CHECKPOINT
        commits = range(at + 1, version + 1)
        if checkpoint > at and not (are_few and all(number in self.commits for number in commits)):
            with self._opened(self._checkpoints[checkpoint]) as file:
                added = pq.ParquetFile(file).read(columns=["add.path"], use_threads=False)["add"]
            needed.jump(checkpoint, pc.struct_field(added, "path").drop_null().to_pylist())
            at = checkpoint
        for number in range(at + 1, version + 1):
            needed.commit(number, *self._changed_by(number))
        return version

    def changed_since(self, at: datetime) -> set[str]:
        """Return the paths of all files that commits since a time added or removed.

        Who reads an older version than the newest one reads these, besides those of the newest.
        """
        since = [version for version, commit in self.commits.items() if commit.at >= at]
        return {path for version in since for path in chain(*self._changed_by(version))}

    def _changed_by(self, version: int) -> tuple[list[str], list[str]]:
        if version not in self.commits:
            raise ShardpostError(f"the log of {self._table.path} lacks version {version}")
        with self._opened(self.commits[version]) as file:
            text = file.read()
        try:
            lines = text.decode().split("\n")
            actions = [json.loads(line) for line in lines if '"path"' in line]
            return _paths(actions, "add"), _paths(actions, "remove")
        except (ValueError, KeyError, TypeError) as error:
            raise ShardpostError(
                f"the log of {self._table.path} cannot be read at version {version}: {error}"
            ) from None

    def _opened(self, entry: StoredFile) -> pa.NativeFile:
        return self._system.open_input_file(f"{self._root}/{entry.path}")


def _paths(actions: list[Mapping[str, Mapping[str, str]]], kind: str) -> list[str]:
    return [action[kind]["path"] for action in actions if kind in action]


# Of a table with a commit point of its own, what a run did not commit is removed after that.
UNCOMMITTED_FOR = timedelta(days=1)
# To list files, and to read logs, a thread waits for its disk or its store most of the time.
TABLES_AT_ONCE = 4


def plan(installation: Installation, now: datetime, *, thin: bool = True) -> Plan:
    """Return what a maintenance would remove now; without `thin`, if it expired no snapshot.

    ShardpostError if snapshots cannot be read.
    """
    times = snapshots.committed_times(installation.tables)  # first: what comes after it is kept
    pinned, unknown = _pinned(installation, now) if times else ({}, None)
    dropped: set[int] = set()
    if unknown is None:
        by_age = kept_snapshots(times.items(), now, installation.tables.snapshot_days, GRACE)
        pinned = {number: pinned[number] for number in pinned.keys() & times.keys() - by_age}
        dropped = times.keys() - by_age - pinned.keys() if thin else dropped
    views = stored_tables.read(installation.tables, dropped)
    return Plan(
        kept=[view.number for view in views.snapshots],
        dropped=sorted(dropped),
        pinned=pinned,
        unknown=unknown,
        tables=_of_tables(installation.tables, views, now),
    )


def _of_tables(tables: Tables, views: stored_tables.Views, now: datetime) -> list[TablePlan]:
    kept = views.snapshots
    whole = unnamed(tables, kept, views.rebuilds)
    gone = {table.path for table in whole}
    since_erasure = stored_tables.since_erasure(kept, now)
    planned: list[Callable[[], TablePlan | None]] = []
    for table in VIEW:
        readable = since_erasure if table.contacts else kept
        folders = stored_tables.folders_of(table, views, readable)
        there = (folder for folder in folders if folder.table.path not in gone)
        planned += [partial(_of_view, tables, folder, now) for folder in there]
    for table in OTHERS:
        planned.append(partial(_of_other, tables, table, table, now))
    for table in FrozenWeeks(tables).audience_tables():
        planned.append(partial(_of_other, tables, table, FROZEN_WEEKS, now))
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        made = [*pool.map(lambda plan_table: plan_table(), planned)]
    return [*filter(None, made), *(_whole(tables, table) for table in whole)]


def _pinned(installation: Installation, now: datetime) -> tuple[dict[int, str], str | None]:
    """Return {number: why} of snapshots that are needed, or why that is not known."""
    # Of audiences, also of those erased up to 2 GRACE ago. A reader may still use such a snapshot
    # for GRACE after it was last offered. The other GRACE is for the maintenance that erases:
    # `audience_erased_at` is the time at which it began.
    weeks = FrozenWeeks(installation.tables).with_audience(now - 2 * GRACE)
    verbs = ((week, "was" if week.audience_erased_at else "is") for week in reversed(weeks))
    pinned = {
        one.snapshot: f"the audience of {one.week} {verb} frozen from it" for one, verb in verbs
    }
    rebuild = registry.current(installation.tables)
    if rebuild and rebuild.state is State.BUILDING:
        pinned[rebuild.pinned] = f"rebuild {rebuild.number} is built from it"
    try:
        noted = noted_snapshots(installation)
    except ShardpostError as error:
        return {}, f"it is unknown which snapshots Kafka stores: {error}"
    return dict.fromkeys(noted, "stored in Kafka as published or sent") | pinned, None


def _of_view(tables: Tables, folder: stored_tables.Folder, now: datetime) -> TablePlan | None:
    opened = stored_tables.opened(tables, folder.table)
    if opened is None:
        return None
    if folder.committed is None:  # whatever is there belongs to a run that did not commit yet
        return TablePlan(folder.table)
    log = stored_files.log_files(tables, folder.table)
    versions = {*folder.versions, *([opened.version()] if folder.is_live else [])}

    def gone() -> list[StoredFile]:
        needed = needed_paths(tables, folder.table, log, versions, opened)
        files = _unneeded(tables, folder.table, needed)
        return below_version(files, folder.committed or 0)

    return _checked(folder.table, gone, unneeded_entries(log, folder.versions, now - GRACE))


def _of_other(tables: Tables, table: Table, point: Table, now: datetime) -> TablePlan | None:
    """Return what is to be removed of a table of no snapshot; None if it is not there.

    The age of files is measured from the newest commit of the table, or of its commit point, so
    that a clock that has jumped ahead has no file removed as too old.
    """
    opened = stored_tables.opened(tables, table)
    if opened is None:
        return None
    log = stored_files.log_files(tables, table)

    def gone() -> list[StoredFile]:
        entries = _Log(tables, table, log)
        commits = [entries.commits]
        if point != table:
            commits.append(_Log(tables, point, stored_files.log_files(tables, point)).commits)
        times = (commit.at for known in commits for commit in known.values())
        newest = min(now, max(times, default=snapshot.NEVER))
        needed = needed_paths(tables, table, log, {opened.version()}, opened)
        needed |= entries.changed_since(newest - GRACE)
        files = _unneeded(tables, table, needed)
        return [file for file in files if file.at < newest - UNCOMMITTED_FOR]

    return _checked(table, gone, unneeded_entries(log, (), now - GRACE))


def _unneeded(tables: Tables, table: Table, needed: Collection[str]) -> list[StoredFile]:
    """Return the data files of a table that are in no needed path.

    What is written while the log is read may be among them: it is for a later version than any that
    was committed before, or it is young.
    """
    return stored_files.data_files(tables, table, partial(is_needed, needed=needed))


def _checked(
    table: Table, gone: Callable[[], list[StoredFile]], entries: list[StoredFile]
) -> TablePlan:
    """Return what is to be removed of a table; nothing if its versions cannot be read."""
    try:
        return TablePlan(table, gone(), entries)
    except (DeltaError, OSError, pa.ArrowException, ShardpostError) as error:
        return TablePlan(table, error=first_line(error))


def _whole(tables: Tables, table: Table) -> TablePlan:
    files = stored_files.stored_files(tables, table)
    log = [file for file in files if file.path.startswith(LOG)]
    data = [file for file in files if not file.path.startswith(LOG)]
    return TablePlan(table, data, log, is_whole=True)
