"""Rows of a table as values of one dataclass: their columns, and the conversion both ways.

A field is a column of its name, of the SQL type that belongs to its Python type. A field whose type
is a dataclass stands for the columns of that one. Marks of `Annotated` say what is stored
otherwise: under another name (`Named`), as INT (`Int32`), or as a JSON document (`Json`).
"""

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum, StrEnum, auto
from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from shardpost.delta.table import Array, Columns

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
