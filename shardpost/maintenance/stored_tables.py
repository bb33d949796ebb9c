"""All tables as the maintenance sees them: folders, versions, sizes, and what keeps them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from shardpost.delta import snapshots, storage, stored_files
from shardpost.delta.query import table_errors
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshot_retention import GRACE
from shardpost.delta.storage import Tables, open_table
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import VIEW
from shardpost.maintenance.model.plan import LOG
from shardpost.rebuilds import registry
from shardpost.rebuilds.drop import unnamed
from shardpost.rebuilds.model.rebuild import Rebuild, Standing
from shardpost.tables import OTHERS
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.week_tables import AUDIENCES
from shardpost.wording import counted

TABLES = (*VIEW, *OTHERS)


def since_erasure(kept: Collection[Snapshot], now: datetime) -> list[Snapshot]:
    """Return the snapshots whose tables with contacts are kept.

    Of those before the one in which a client was erased they are kept for an hour, for who had
    begun to read them: nobody else may.
    """
    newest = max(kept, key=lambda one: one.number, default=None)
    erased_in = (newest and newest.erased_in) or 0
    since = [view for view in kept if view.number >= erased_in]
    # One of them may be by a clock that was ahead, as that of the erasure is after such a one.
    is_over = any(now - view.committed_at >= GRACE for view in since)
    return since if is_over else [*kept]


def opened(tables: Tables, table: Table) -> DeltaTable | None:
    """Return the newest version of a table; None if there is no such table."""
    try:
        return open_table(tables, table)
    except TableNotFoundError:
        return None


# More often than a rebuild's row changes while two tables are read.
MOST_READS = 10

_FOR = {
    Standing.BUILDING: "rebuild {}, which is being built",
    Standing.READY: "rebuild {}, to be swapped",
    Standing.ROLLED_BACK: "rebuild {}, to be swapped again",
    Standing.IN_USE: "rebuild {}, for a rollback",
}


@dataclass(frozen=True)
class Views:
    """All that names tables: the rows of `snapshots` and of `rebuilds`, as of one moment."""

    snapshots: Sequence[Snapshot]
    rebuilds: Sequence[Rebuild]

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot."""
        return max(self.snapshots, key=lambda one: one.number, default=None)

    @property
    def rebuild(self) -> Rebuild | None:
        """The rebuild that is open."""
        return next((rebuild for rebuild in reversed(self.rebuilds) if rebuild.is_open), None)


@dataclass(frozen=True)
class Folder:
    """A table in one of its folders.

    `versions` are those that are kept, and `kept_for` says for whom. Who goes on writing there
    writes for versions after `committed`, which is None if nothing of the folder is. `is_live`:
    somebody may go on.
    """

    table: Table
    versions: frozenset[int]
    committed: int | None
    is_live: bool
    kept_for: str


def read(tables: Tables, without: Collection[int] = ()) -> Views:
    """Return all that names tables now, but snapshots of some numbers.

    The rows of rebuilds are the same before and after those of the snapshots are read. So nothing
    is given up in between, and what is swapped after that is made of what these rows name, by files
    for later versions than theirs.
    """
    rebuilds = registry.list_rebuilds(tables)
    for _ in range(MOST_READS):
        views = snapshots.list_all(tables, without)
        again = registry.list_rebuilds(tables)
        if again == rebuilds:
            return Views(views, rebuilds)
        rebuilds = again
    raise ShardpostError(f"table rebuilds: changed during each of {MOST_READS} reads: run again")


def folders_of(table: Table, views: Views, kept: Collection[Snapshot]) -> list[Folder]:
    """Return the folders of a table that something names; `kept` are snapshots of which it is kept.

    Of a table that the newest snapshot does not know that is its own folder, in which nothing is
    committed.
    """
    newest, rebuild = views.newest, views.rebuild
    if newest is None or table.name not in newest.tables:
        return [Folder(table, frozenset(), None, True, "its newest version")]
    naming = [newest, *(view for view in views.snapshots if table.name in view.tables)]
    naming += rebuild.views(newest) if rebuild else []
    located = {there.path: there for there in (view.located(table) for view in naming)}
    return [_folder(there, views, newest, kept) for there in located.values()]


def _folder(table: Table, views: Views, newest: Snapshot, kept: Collection[Snapshot]) -> Folder:
    named, rebuild = _versions(table, kept), views.rebuild
    read = rebuild.views(newest) if rebuild else []
    count = sum(_names(view, table) for view in kept)
    reasons = [counted(count, "snapshot")]
    committed = max(_versions(table, views.snapshots), default=None)
    is_in_use = _is_in(newest, table)
    is_standby = not is_in_use and bool(read) and _is_in(read[0], table)
    if is_in_use:
        committed = newest.tables[table.name]
    elif is_standby:
        committed = read[0].tables.get(table.name)
        reasons = [reason for reason in reasons if named]
    if is_standby and rebuild:
        reasons.append(_FOR[rebuild.standing(newest)].format(rebuild.number))
    standby = _versions(table, _kept_of(table, rebuild, read, newest) if rebuild else ())
    return Folder(table, named | standby, committed, is_in_use or is_standby, "; ".join(reasons))


def _kept_of(
    table: Table, rebuild: Rebuild, read: list[Snapshot], newest: Snapshot
) -> list[Snapshot]:
    """Return those of what is read of a rebuild that are kept of a table.

    Of a table with contacts nobody reads those in use as they were before a client was erased. It
    is erased from a rebuild's own that are not in use, which come first.
    """
    if not table.contacts:
        return read
    standby = read[:1] if table.name in rebuild.tables else []
    others = (view for view in read if view not in standby)
    return [*standby, *(view for view in others if view.number >= (newest.erased_in or 0))]


def _versions(table: Table, views: Collection[Snapshot]) -> frozenset[int]:
    return frozenset(view.tables[table.name] for view in views if _names(view, table))


def _names(view: Snapshot, table: Table) -> bool:
    """Tell whether a view has a table, in that folder."""
    return table.name in view.tables and _is_in(view, table)


def _is_in(view: Snapshot, table: Table) -> bool:
    return view.folders.get(table.name, table.name) == table.path


@dataclass(frozen=True)
class TableSize:
    """The size of a table, in the contract's form.

    `table` is a folder; `files` and `bytes` are all in it but the log, which has `log_bytes`.
    `rows` are those of the newest version that is kept; `versions` are so many that are kept, for
    what `kept_for` says.
    """

    table: str
    files: int
    bytes: int
    log_bytes: int
    rows: int
    versions: int
    kept_for: str


def table_sizes(tables: Tables) -> list[TableSize]:
    """Return the sizes of all tables that are there, in each of their folders.

    ShardpostError if they cannot be read.
    """
    with table_errors():
        views = read(tables)
        folders = [folder for table in VIEW for folder in folders_of(table, views, views.snapshots)]
        sizes = [
            *(_size(tables, folder.table, folder.versions, folder.kept_for) for folder in folders),
            *(
                _of_audiences(tables)
                if table == AUDIENCES
                else _size(tables, table, None, "its newest version")
                for table in OTHERS
            ),
            *(
                _size(tables, table, (), "nothing: the next maintenance removes it")
                for table in unnamed(tables, views.snapshots, views.rebuilds)
            ),
        ]
        return [size for size in sizes if size is not None]


def _of_audiences(tables: Tables) -> TableSize | None:
    each = FrozenWeeks(tables).audience_tables()
    found = stored_files.side_by_side(lambda table: _size(tables, table, None, ""), each)
    sizes = [size for size in found if size is not None]
    if not sizes:
        return None
    names = ("files", "bytes", "log_bytes", "rows", "versions")
    sums = {name: sum(getattr(size, name) for size in sizes) for name in names}
    return TableSize(AUDIENCES.name, **sums, kept_for=counted(len(sizes), "frozen week"))


def _size(
    tables: Tables, table: Table, versions: Collection[int] | None, kept_for: str
) -> TableSize | None:
    newest = storage.newest_version(tables, table)
    if newest is None:
        return None
    versions = {newest} if versions is None else versions
    files = stored_files.stored_files(tables, table)
    data = [file.size for file in files if not file.path.startswith(LOG)]
    log = [file.size for file in files if file.path.startswith(LOG)]
    rows = sum(storage.rows(tables, table, max(versions, default=newest)).values())
    sizes = (len(data), sum(data), sum(log), rows, len(versions))
    return TableSize(table.path, *sizes, kept_for)
