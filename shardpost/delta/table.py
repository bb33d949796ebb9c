"""A Delta table: its declaration, its versions, its files, and values as literals of its SQL.

A version may be of a table whose files are folded up to an earlier snapshot only: then it has a
layer. Literals are such that Spark and DataFusion both read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from shardpost.errors import UsageError


class Array(NamedTuple):
    """The type of a column of arrays; their elements are of a SQL type, or structs of columns."""

    element: "str | Columns"


# ((name, SQL type), …)
Columns = tuple[tuple[str, str | Array], ...]


def columns(text: str) -> Columns:
    """Return columns of plain types, as in `key STRING, offset BIGINT`."""
    pairs = (column.split() for column in text.split(", "))
    return tuple((name, type_) for name, type_ in pairs)


def ddl_of(columns: Columns) -> str:
    """Return columns as DDL of Spark SQL."""
    return ", ".join(f"`{name}` {type_text(type_)}" for name, type_ in columns)


def type_text(type_: str | Array) -> str:
    """Return a type of a column in SQL."""
    if isinstance(type_, str):
        return type_
    if isinstance(type_.element, str):
        return f"ARRAY<{type_.element}>"
    struct = ", ".join(f"{name}: {type_text(inner)}" for name, inner in type_.element)
    return f"ARRAY<STRUCT<{struct}>>"


@dataclass(frozen=True)
class Layer:
    """What the rows of a table are, by its files and the layer over them.

    `view` selects all rows, `of_keys` those of some keys, in SQL that both engines read. In them
    {stored} is the table as its files have it, {layer} the table `source` (the same one if that is
    None), of which rows with a `snapshot` above {folded} are the layer; {keys} has the column of
    keys, each once. {small} marks for Spark that the relation k is small.
    """

    view: str
    of_keys: str
    source: "Table | None" = None


@dataclass(frozen=True)
class Table:
    """One Delta table: its folder's name, and its columns (`typed_rows.columns_of` a dataclass).

    Each of its files has rows of one value of `grouped_by`, so that reading one value skips the
    other files. Columns of `not_in_dictionaries` are written without Parquet's dictionaries, since
    their values seldom repeat. Files may lack columns of `optional`: they read as null. Where a
    snapshot says that its files are folded up to an earlier one, its rows are what `layer` says.
    Columns of `contacts` may have names and addresses: the log of the table has no bounds of them,
    and what they have of a client goes when it is erased. It lies in the folder of its name, or in
    `folder` if a snapshot says so. The row groups that this process writes are sorted by
    `sorted_by`, so that who looks for some of its values skips pages; nobody relies on that order.
    `comments` says of columns what docs/tables.md has; columns whose name says it have none.
    """

    name: str
    columns: Columns
    grouped_by: str | None = None
    not_in_dictionaries: tuple[str, ...] = ()
    optional: Columns = ()
    layer: Layer | None = None
    contacts: tuple[str, ...] = ()
    folder: str | None = None
    sorted_by: str | None = None
    comments: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def ddl(self) -> str:
        """Its columns as DDL of Spark SQL."""
        return ddl_of(self.columns)

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return [name for name, _ in self.columns]

    @property
    def path(self) -> str:
        """Its folder within that of all tables."""
        return self.folder or self.name

    def located(self, folders: Mapping[str, str]) -> "Table":
        """Return the table, and the source of its layer, in the folders of {name: folder}."""
        folder, layer = folders.get(self.name), self.layer
        if layer and layer.source:
            layer = replace(layer, source=layer.source.located(folders))
        return replace(self, folder=folder, layer=layer)

    @property
    def layer_source(self) -> "Table":
        """The table whose rows are its layer, if it has one: its own where that names no other."""
        return (self.layer and self.layer.source) or self


@dataclass(frozen=True)
class LayeredVersion:
    """A version of a table, folded up to the snapshot `folded`, and that of its layer's source.

    With `keys` (a SELECT) only the rows of these keys are meant.
    """

    version: int
    folded: int
    source: int
    keys: str | None = None


def layered(table: Table, versions: Mapping[str, int], folded: int) -> LayeredVersion:
    """Return the version of a table with a layer; `versions` are those of the tables, by name."""
    return LayeredVersion(versions[table.name], folded, versions[table.layer_source.name])


# None is the newest version, and has no layer.
Version = int | LayeredVersion | None


# The folder of a table's log, within the table's.
LOG_FOLDER = "_delta_log"


@dataclass(frozen=True)
class StoredFile:
    """`path` is within the table's folder; `at` is when it was written, `size` in bytes."""

    path: str
    size: int
    at: datetime


# DataFusion has time literals as nanoseconds in 64 bits.
MIN_TIME = datetime(1678, 1, 1, tzinfo=UTC)
MAX_TIME = datetime(2262, 1, 1, tzinfo=UTC)  # exclusive


def text_literal(value: str) -> str:
    """Return a string as a SQL literal; in hexadecimal where the engines differ in quoting.

    Spark replaces `${env:HOME}` and its like even within quotes.
    """
    if value.isprintable() and not set("'\\$") & set(value):
        return f"'{value}'"
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


def time_literal(at: datetime) -> str:
    """Return an aware time as a SQL literal, in microseconds; UsageError outside 1678 to 2261."""
    if not MIN_TIME <= at < MAX_TIME:
        raise UsageError(f"as of {at.isoformat()}: expected a time from 1678 to 2261")
    return f"TIMESTAMP '{at.astimezone(UTC).isoformat(sep=' ', timespec='microseconds')}'"
