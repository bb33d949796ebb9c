"""What a maintenance would remove now. Nothing is changed.

The files of a snapshot go an hour after it was offered for the last time: the rule of
snapshot_retention.py is applied as it was an hour ago, and what it kept then contains all that was
offered since.
"""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial

import pyarrow as pa
from deltalake.exceptions import DeltaError

from shardpost.delta import snapshot_retention, stored_files
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshot_retention import GRACE
from shardpost.delta.stored_file import StoredFile
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import VIEW
from shardpost.holders.published_partitions import noted_snapshots
from shardpost.maintenance import folders, tables
from shardpost.maintenance.folders import Folder
from shardpost.maintenance.model import data_files
from shardpost.maintenance.model.log_entries import LOG, unneeded_entries
from shardpost.maintenance.model.plan import Plan, TablePlan
from shardpost.maintenance.needed_paths import needed_paths
from shardpost.rebuilds.drop import unnamed
from shardpost.rebuilds.model.rebuild import State
from shardpost.settings import Settings
from shardpost.weekly_email import frozen_weeks
from shardpost.weekly_email.model.week_tables import AUDIENCES

# Of a table with a commit point of its own, what a run wrote and did not commit goes after that.
UNCOMMITTED_FOR = timedelta(days=1)
# To list files, and to read logs, a thread waits for its disk or its store most of the time.
TABLES_AT_ONCE = 4

# A snapshot that was frozen for a week, by week: its number, and the version of `audiences`.
Frozen = dict[str, tuple[int, int]]


def plan(settings: Settings, now: datetime, *, thin: bool = True) -> Plan:
    """Return what a maintenance would remove now; without `thin`, what it would keep all rows for.

    ShardpostError if snapshots cannot be read.
    """
    views = folders.read(settings)
    found = views.snapshots
    frozen = tables.frozen_audiences(settings)
    pinned, unknown = _pinned(settings, views, now)
    numbers = {one.number for one in found}
    if unknown is None:
        committed = ((one.number, one.committed_at) for one in found)
        by_age = snapshot_retention.kept(committed, now, settings.snapshot_days, GRACE)
        pinned = {number: why for number, why in pinned.items() if number in numbers - by_age}
        numbers = by_age | set(pinned) if thin else numbers
    kept = [one for one in found if one.number in numbers]
    whole = unnamed(settings, kept, views.rebuilds)
    gone = {table.path for table in whole}
    of_view = (
        partial(_of_view, settings, folder, now)
        for table in VIEW
        for folder in folders.folders_of(table, views, _readable(table, kept, now))
        if folder.table.path not in gone
    )
    of_others = (partial(_of_other, settings, table, frozen, now) for table in tables.OTHERS)
    return Plan(
        kept=sorted(numbers),
        dropped=[one.number for one in found if one.number not in numbers],
        pinned=pinned,
        unknown=unknown,
        tables=[
            *filter(None, _together([*of_view, *of_others])),
            *(_whole(settings, table) for table in whole),
        ],
    )


def _together(made: Sequence[Callable[[], TablePlan | None]]) -> list[TablePlan | None]:
    """Return what is planned of tables, some at a time: nothing of one is for another."""
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        return [*pool.map(lambda make: make(), made)]


def _readable(table: Table, kept: list[Snapshot], now: datetime) -> list[Snapshot]:
    """Return the snapshots of which a table is kept."""
    return tables.since_erasure(kept, now) if table.contacts else kept


def _pinned(
    settings: Settings, views: folders.Views, now: datetime
) -> tuple[dict[int, str], str | None]:
    """Return {number: why} of snapshots that are needed, or why that is not known."""
    pinned = _of_weeks(settings, now)
    rebuild = views.rebuild
    if rebuild and rebuild.state is State.BUILDING:
        pinned[rebuild.pinned] = f"rebuild {rebuild.number} is built of it"
    if not views.snapshots:
        return pinned, None
    try:
        noted = noted_snapshots(settings)
    except ShardpostError as error:
        return {}, f"which ones Kafka names is not known: {error}"
    return dict.fromkeys(noted, "Kafka names it as published or sent") | pinned, None


def _of_weeks(settings: Settings, now: datetime) -> dict[int, str]:
    """Return {number: why} of the snapshots that an audience is of, or was until a while ago.

    So long they are offered (snapshots.py); and an audience is erased as of when that run began.
    """
    weeks = frozen_weeks.with_audience(settings, now - 2 * GRACE)
    verbs = ((one, "was" if one.audience_erased_at else "is") for one in reversed(weeks))
    return {one.snapshot: f"the audience of {one.week} {verb} of it" for one, verb in verbs}


def _of_view(settings: Settings, folder: Folder, now: datetime) -> TablePlan | None:
    """Return what goes of a table in a folder; None if there is no such folder."""
    opened = tables.opened(settings, folder.table)
    if opened is None:
        return None
    if folder.committed is None:  # whatever is there belongs to a run that did not commit yet
        return TablePlan(folder.table)
    log = stored_files.log_files(settings, folder.table)
    versions = {*folder.versions, *([opened.version()] if folder.is_live else [])}

    def gone() -> list[StoredFile]:
        needed = needed_paths(settings, folder.table, log, versions, opened)
        files = _unneeded(settings, folder.table, needed)
        return data_files.below_version(files, needed, folder.committed or 0)

    return _checked(folder.table, gone, unneeded_entries(log, folder.versions, now - GRACE))


def _of_other(settings: Settings, table: Table, frozen: Frozen, now: datetime) -> TablePlan | None:
    """Return what goes of a table with a commit point of its own; None if there is no such table.

    By the time of its newest commit: a clock that has jumped ahead makes nothing old.
    """
    opened = tables.opened(settings, table)
    if opened is None:
        return None
    log = stored_files.log_files(settings, table)
    named = {version for _, version in frozen.values()} if table == AUDIENCES else set[int]()

    def gone() -> list[StoredFile]:
        newest = min(now, tables.newest_commit(log))
        needed = needed_paths(settings, table, log, {*named, opened.version()}, opened)
        needed |= tables.committed_since(settings, table, log, newest - GRACE)
        files = _unneeded(settings, table, needed)
        return data_files.before(files, needed, newest - UNCOMMITTED_FOR)

    # From the whole log of audiences, names and addresses are erased (delta/log_statistics.py); it
    # has an entry a week.
    entries = [] if table == AUDIENCES else unneeded_entries(log, named, now - GRACE)
    return _checked(table, gone, entries)


def _unneeded(settings: Settings, table: Table, needed: Collection[str]) -> list[StoredFile]:
    """Return the data files of a table that are in no needed path.

    What is written while the log is read may be among them: it is for a later version than any that
    was committed before, or it is young.
    """
    is_needed = partial(data_files.is_needed, needed=needed)
    return stored_files.data_files(settings, table, is_needed)


def _checked(
    table: Table, gone: Callable[[], list[StoredFile]], entries: list[StoredFile]
) -> TablePlan:
    """Return what goes of a table; nothing if its versions cannot be read."""
    try:
        return TablePlan(table, gone(), entries)
    except (DeltaError, OSError, pa.ArrowException, ShardpostError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        return TablePlan(table, error=line)


def _whole(settings: Settings, table: Table) -> TablePlan:
    """Return a folder, with all that is in it, as what goes."""
    files = stored_files.stored_files(settings, table)
    log = [file for file in files if file.path.startswith(LOG)]
    data = [file for file in files if not file.path.startswith(LOG)]
    return TablePlan(table, data, log, is_whole=True)
