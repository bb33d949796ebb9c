"""The tables of an installation: where they are, versions to read or write, their files.

`SHARDPOST_TABLES` is one path or URL for deltalake, pyarrow and Spark.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from shardpost.checkout import home_folder
from shardpost.delta import object_store
from shardpost.delta.object_store import Address, Objects
from shardpost.delta.table import Table
from shardpost.errors import UsageError

if TYPE_CHECKING:  # files of DAGs import this module, and open no table when they are parsed
    from deltalake import DeltaTable

Opened = TypeVar("Opened")


class Claim(Protocol):
    """A lock that is held on a store."""

    def require(self) -> None:
        """Refuse to continue if it was taken over."""


@dataclass
class Tables:
    """Where the tables of an installation are: `root`, a path or a URL of an object store.

    `credentials` are variables of AWS by their names, of a store. Versions of `snapshots` are kept
    for `snapshot_days`. `home` is made, for this user alone, before tables are.
    """

    root: str
    is_on_store: bool
    credentials: Mapping[str, str] = field(repr=False)
    snapshot_days: int
    home: Path

    def __post_init__(self) -> None:
        """Begin without open tables, and without claims."""
        # Versions of tables by path, while somebody is in `opened_once`.
        self._kept: dict[tuple[str, int], Any] | None = None
        self._answers: dict[Callable[[Address], Any], Any] = {}
        # What this run holds of the locks on a store.
        self.claims: list[Claim] = []

    def __reduce__(self) -> tuple[type["Tables"], tuple[object, ...]]:
        """Pickle the values alone, nothing that is open or held."""
        return type(self), tuple(getattr(self, one.name) for one in fields(self))

    @contextmanager
    def opened_once(self) -> Iterator[None]:
        """Open each version of a table once within this block, in all threads.

        A version never changes while nobody puts another table in its place: so not for long.
        """
        self._kept = {}
        try:
            yield
        finally:
            self._kept = None

    def version(self, path: str, version: int, make: Callable[[], Opened]) -> Opened:
        """Return a version of the table at that path."""
        if (kept := self._kept) is None:
            return make()
        found: Opened = kept.get((path, version)) or make()
        kept[path, version] = found
        return found

    def once(self, ask: Callable[[Address], Opened], where: Address) -> Opened:
        """Return a function's result about the store, computed once."""
        if ask not in self._answers:
            self._answers[ask] = ask(where)
        found: Opened = self._answers[ask]
        return found

    def require_held(self) -> None:
        """Refuse to continue if a lock of this run was taken over; before each commit.

        LostLockError names the new holder; ShardpostError if the store does not answer. Files,
        whose locks cannot be taken over, cost nothing.
        """
        for claim in [*self.claims]:
            claim.require()

    @property
    def address(self) -> Address | None:
        """The store of the tables; None where they are on this machine."""
        return Address.of(self.root, self.credentials) if self.is_on_store else None

    def answering(self) -> Address | None:
        """Return the store of the tables, after it has answered once; None without one."""
        where = self.address
        if where is not None:
            self.once(object_store.require_answer, where)
        return where

    def objects(self, *folders: str) -> Objects:
        """Return the objects, or files, below a folder beside the tables, such as `_locks`.

        ShardpostError if a store does not answer.
        """
        if where := self.answering():
            return object_store.open_objects(where, *folders)
        from obstore.store import LocalStore  # few need it

        return Objects(LocalStore(Path(self.root, *folders)), None)

    def require_conditional_put(self) -> None:
        """Refuse a store that lets several writers put one key (asked once)."""
        if where := self.answering():
            self.once(object_store.require_conditional_put, where)


def path_of(tables: Tables, table: Table) -> str:
    """Return the path or URL of a table."""
    return f"{tables.root}/{table.path}"


def opened(tables: Tables, table: Table, version: int | None = None) -> "DeltaTable":
    """Open a table with deltalake, at a version or the newest; raises deltalake's errors.

    Who changes a table opens its newest version; who asks for a version only reads it.
    """
    from deltalake import DeltaTable

    path = path_of(tables, table)

    def make() -> "DeltaTable":
        return DeltaTable(path, version=version, storage_options=storage_options(tables))

    return make() if version is None else tables.version(path, version, make)


# The form of all tables that this release writes, as a property of each table. A release that
# changes what tables mean takes those of the forms since 0.2.0 over, and gives them its own. Up to
# form 3, `share_holders` is its own layer (snapshot.py).
FORM_PROPERTY, FIRST_FORM, FORM = "shardpost.form", 3, 4


class TableFormError(UsageError):
    """The tables were made by another release, which this one cannot read."""


def open_table(tables: Tables, table: Table, version: int | None = None) -> "DeltaTable":
    """Open a table; TableFormError if it does not have the form of this release."""
    found = opened(tables, table, version)
    form = int(found.metadata().configuration.get(FORM_PROPERTY, 0))
    if form < FIRST_FORM:
        raise TableFormError(
            f"table {table.path} in {tables.root} was made before 0.2.0, the first"
            " release, and cannot be read: set SHARDPOST_TABLES to an empty folder and compact"
            " again (docs/operations.md#tables-of-another-release says what is kept)"
        )
    if form > FORM:
        raise TableFormError(
            f"table {table.path} in {tables.root} was made by a newer release of"
            f" Shardpost: it has form {form}, and this release reads forms up to {FORM};"
            " install that release, or restore the backup from before the upgrade"
        )
    return found


def exists(tables: Tables, table: Table) -> bool:
    """Tell whether a table exists."""
    from deltalake import DeltaTable

    return DeltaTable.is_deltatable(path_of(tables, table), storage_options(tables))


def storage_options(tables: Tables) -> dict[str, str] | None:
    """Return what deltalake is given; None for tables of this machine."""
    if (where := tables.answering()) is None:
        return None
    return {
        **tables.credentials,
        "AWS_ALLOW_HTTP": str(where.is_plain).lower(),
        "connect_timeout": f"{object_store.CONNECT_SECONDS}s",
        "timeout": f"{object_store.REQUEST_SECONDS}s",
        "max_retries": str(object_store.RETRIES),
        "retry_timeout": f"{object_store.RETRY_SECONDS}s",
    }


def prepare(tables: Tables) -> None:
    """Create the folder of the tables, for this user alone; refuse a store that loses commits."""
    home_folder(tables.home)
    tables.require_conditional_put()
    if not tables.is_on_store:
        Path(tables.root).mkdir(mode=0o700, parents=True, exist_ok=True)


CHECKPOINT_INTERVAL = 10
PROPERTIES = {
    FORM_PROPERTY: str(FORM),
    # Who opens a table reads its newest checkpoint and fewer commits than that.
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    # Delta by itself deletes commits by their age: snapshots that are kept may name older ones.
    "delta.enableExpiredLogCleanup": "false",
    # For so long, checkpoints list files that were removed, which is of use to nobody here.
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}


def create(tables: Tables, table: Table, keep_days: int) -> None:
    """Create a table, empty, unless it exists; its old versions are kept for that many days."""
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import CommitFailedError

    from shardpost.delta.arrow_schema import arrow_schema

    prepare(tables)
    days = {"delta.logRetentionDuration": f"interval {keep_days} days"}
    try:
        DeltaTable.create(
            path_of(tables, table),
            Schema.from_arrow(arrow_schema(table)),
            mode="ignore",
            configuration={**days, **PROPERTIES},
            storage_options=storage_options(tables),
            raise_if_key_not_exists=False,  # Delta does not know ours
        )
    except CommitFailedError:  # another run is creating it
        if not exists(tables, table):
            raise


def writable(tables: Tables, table: Table, keep_days: int = 1) -> "DeltaTable":
    """Return the newest version of a table, for writing; create the table if it is missing.

    By default nobody asks for an old version of it. A column that an earlier release did not have
    is added: in its rows it is null.
    """
    from deltalake import Schema

    from shardpost.delta.arrow_schema import arrow_schema

    if not exists(tables, table):
        create(tables, table, keep_days)
    found = open_table(tables, table)
    known = {column.name for column in found.schema().fields}
    declared = Schema.from_arrow(arrow_schema(table)).fields
    if missing := [column for column in declared if column.name not in known]:
        found.alter.add_columns(missing)
    return found


def newest_version(tables: Tables, table: Table) -> int | None:
    """Return the newest version of a table; None if there is no such table."""
    return open_table(tables, table).version() if exists(tables, table) else None


# A file whose statistics are unknown may have any number, or time.
LOWEST, HIGHEST = 0, 2**63 - 1


@dataclass(frozen=True)
class RowFile:
    """A file: its path within the table, bytes, rows, and the bounds of a column of its rows."""

    path: str
    size: int
    rows: int
    lowest: Any
    highest: Any


def row_files(table: "DeltaTable", key: str | None = None) -> list[RowFile]:
    """Return the files of an opened table, with the bounds of a column of numbers or times."""
    import pyarrow as pa

    actions = table.get_add_actions(flatten=True)
    names, count = set(actions.schema.names), actions.num_rows

    def column(name: str, unknown: int = 0) -> list[Any]:
        if name not in names:
            return [unknown] * count
        # Not pa.table(…): that imports pandas.
        found = pa.chunked_array(actions.column(name)).to_pylist()
        return [unknown if one is None else one for one in found]

    bounds = column(f"min.{key}", LOWEST), column(f"max.{key}", HIGHEST)
    files = zip(*(column(n) for n in ("path", "size_bytes", "num_records")), *bounds, strict=True)
    return [RowFile(*file) for file in files]


def sizes(tables: Tables, table: Table, version: int | None) -> dict[str, int]:
    """Return {path within the table: bytes} of the files of one version."""
    return sizes_of(opened(tables, table, version))


def sizes_of(table: "DeltaTable") -> dict[str, int]:
    """Return {path within the table: bytes} of the files of an opened table."""
    return {file.path: file.size for file in row_files(table)}


def rows(tables: Tables, table: Table, version: int) -> dict[str, int]:
    """Return {path within the table: rows} of the files of one version."""
    return {file.path: file.rows for file in row_files(opened(tables, table, version))}


def files_after(tables: Tables, table: Table, version: int, snapshot: int) -> list[RowFile]:
    """Return the files that may have rows of later snapshots, by statistics."""
    files = row_files(opened(tables, table, version), "snapshot")
    return [file for file in files if file.highest > snapshot]


def files_before(
    tables: Tables, table: Table, version: int, column: str, at: datetime
) -> dict[str, int]:
    """Return {path: bytes} of the files that may have a time before that one, by statistics."""
    files = row_files(opened(tables, table, version), column)
    return {file.path: file.size for file in files if file.lowest == LOWEST or file.lowest < at}
