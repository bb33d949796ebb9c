"""A Delta table: its declaration, its versions, its files, and values as literals of its SQL.

Rows are values of one dataclass: a field is a column of its name, of the SQL type that belongs to
its Python type. A field whose type is a dataclass stands for the columns of that one. `Named`,
`Int32`, `Json` and `JsonOrNull` say what is stored otherwise.

A version may be of a table whose files are folded up to an earlier snapshot only: then it has a
layer. Literals are such that Spark and DataFusion both read them.
"""

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime
from enum import Enum, StrEnum, auto
from functools import cache, partial
from types import UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

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
    {stored} is the table as its files have it, {layer} the table `source`, of which rows with a
    `snapshot` above {folded} are the layer; {keys} has the column of keys, each once. {small} marks
    for Spark that the relation k is small.
    """

    view: str
    of_keys: str
    source: "Table"


@dataclass(frozen=True)
class Table:
    """One Delta table: its folder's name, and its columns (`columns_of` a dataclass).

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
        if layer:
            layer = replace(layer, source=layer.source.located(folders))
        return replace(self, folder=folder, layer=layer)

    @property
    def layer_source(self) -> "Table":
        """The table whose rows are its layer, if it has one."""
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


T = TypeVar("T")
Row = dict[str, Any]
# Makes a field's value of what a row, or a JSON document, has.
Reader = Callable[[Any], Any]


class Mark(Enum):
    """What `Annotated` says of a field. An empty value that is stored as null reads as default."""

    INT = auto()
    JSON = auto()
    EMPTY_AS_NULL = auto()


@dataclass(frozen=True)
class Named:
    """The column's name, where it is not the field's."""

    name: str


Int32 = Annotated[int, Mark.INT]
Json = Annotated[T, Mark.JSON]
JsonOrNull = Annotated[T, Mark.JSON, Mark.EMPTY_AS_NULL]

_SQL_TYPES: dict[object, str] = {
    str: "STRING",
    bytes: "BINARY",
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    datetime: "TIMESTAMP",
}


@dataclass(frozen=True)
class _Column:
    """One field as it is stored: `kind` is its Python type without None and marks.

    `parts` is the dataclass for whose columns it stands. Without `of_stored` it
    is as it is stored.
    """

    field: str
    name: str
    kind: Any
    marks: frozenset[object]
    is_optional: bool
    parts: type[Any] | None
    of_stored: Reader | None

    @property
    def columns(self) -> Columns:
        if self.parts:
            return columns_of(self.parts)
        if Mark.JSON in self.marks:
            return ((self.name, "STRING"),)
        if Mark.INT in self.marks:
            return ((self.name, "INT"),)
        if get_origin(self.kind) is tuple:
            return ((self.name, Array(_SQL_TYPES[get_args(self.kind)[0]])),)
        of_enum = issubclass(self.kind, StrEnum)
        return ((self.name, "STRING" if of_enum else _SQL_TYPES[self.kind]),)

    def stored(self, value: Any) -> Row:
        """Return what a row has of a value of the field."""
        if self.parts:
            return to_row(value)
        if Mark.JSON not in self.marks or value is None:
            return {self.name: value}
        if Mark.EMPTY_AS_NULL in self.marks and not value:
            return {self.name: None}
        return {self.name: json.dumps(value, default=_json_value)}


def columns_of(kind: type[Any]) -> Columns:
    """Return the columns of the rows that a dataclass declares, in the order of its fields."""
    return tuple(column for field in _columns(kind) for column in field.columns)


def to_row(value: Any) -> Row:
    """Return a value of such a dataclass as {column: what is stored}."""
    row: Row = {}
    for column in _columns(type(value)):
        row |= column.stored(getattr(value, column.field))
    return row


def from_row(kind: type[T], row: Row) -> T:
    """Return the value of a row; a field has its default where the row lacks its column.

    Or where that is null, and the field cannot be None.
    """
    values = {}
    for column in _columns(kind):
        if column.parts:
            values[column.field] = from_row(column.parts, row)
        elif (stored := row.get(column.name)) is not None:
            values[column.field] = column.of_stored(stored) if column.of_stored else stored
        elif column.is_optional and column.name in row:
            values[column.field] = None
    return kind(**values)


def _columns(kind: type[Any]) -> tuple[_Column, ...]:
    return _columns_of(cast("Hashable", kind))


@cache
def _columns_of(kind: Any) -> tuple[_Column, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_column(field.name, hints[field.name]) for field in fields(kind))


def _column(field: str, hint: Any) -> _Column:
    marks: list[object] = []
    is_optional = False
    while (origin := get_origin(hint)) in (Annotated, Union, UnionType):
        hint, *more = (arg for arg in get_args(hint) if arg is not type(None))
        is_optional |= origin is not Annotated
        marks += more
    name = next((mark.name for mark in marks if isinstance(mark, Named)), field)
    is_json = Mark.JSON in marks
    parts = cast("type[Any]", hint) if is_dataclass(hint) and not is_json else None
    read = _reader(hint)

    def read_text(text: str) -> Any:
        return (read or _same)(json.loads(text))

    of_stored = read_text if is_json else read
    return _Column(field, name, hint, frozenset(marks), is_optional, parts, of_stored)


def _reader(kind: Any) -> Reader | None:
    """Return what makes a value of a type of what is stored; None if it is that."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is tuple:
        return lambda stored: tuple(map(_reader(args[0]) or _same, stored))
    if origin is not None and issubclass(origin, Mapping):
        of_key = int if args[0] is int else _same  # the keys of a JSON object are texts
        of_value = _reader(args[1]) or _same
        return lambda stored: {of_key(key): of_value(value) for key, value in stored.items()}
    if is_dataclass(kind):
        return partial(from_row, cast("type[Any]", kind))
    if kind is datetime:
        return lambda stored: datetime.fromisoformat(stored) if isinstance(stored, str) else stored
    return kind if issubclass(kind, StrEnum) else None


def _same(value: Any) -> Any:
    return value


def _json_value(value: Any) -> Any:
    """Return in JSON's types what `json` does not know."""
    if isinstance(value, datetime):
        return value.isoformat()
    return dict(value) if isinstance(value, Mapping) else to_row(value)
