"""The Arrow schema of a table, from its columns as Spark SQL DDL."""

import re

import pyarrow as pa

from shardpost.delta.table import Table

_TYPES = {
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
_TOKEN = re.compile(r"\s*(?:`(?P<quoted>\w+)`|(?P<word>\w+)|(?P<mark>[<>,:]))\s*")


def arrow_schema(table: Table) -> pa.Schema:
    """Return the schema of a table; ValueError for DDL that `arrow_schema_of` does not know."""
    return arrow_schema_of(table.columns)


def arrow_schema_of(ddl: str) -> pa.Schema:
    """Return the schema of columns in DDL, such as `a STRING, b ARRAY<STRUCT<c: INT>>`.

    Types are those of `_TYPES`, ARRAY and STRUCT; all may be null. ValueError for anything else.
    """
    parser = _DdlParser(ddl)
    fields = parser.fields(separator="")
    parser.expect("")
    return pa.schema(fields)


def _tokens(ddl: str) -> list[str]:
    """Return the names, types and marks of DDL, and "" as the last."""
    found, end = [], 0
    while end < len(ddl):
        token = _TOKEN.match(ddl, end)
        if token is None:
            raise ValueError(f"{ddl}: expected a name, a type or one of <>,: found {ddl[end:]!r}")
        found.append(token[token.lastgroup or 0])
        end = token.end()
    return [*found, ""]


class _DdlParser:
    """Parses DDL from left to right."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._rest = _tokens(ddl)

    def fields(self, *, separator: str) -> list[pa.Field]:
        """Parse `name TYPE, …`; within a struct the separator of name and type is a colon."""
        found = []
        while True:
            name = self._name()
            if separator:
                self.expect(separator)
            found.append(pa.field(name, self._type()))
            if self._rest[0] != ",":
                return found
            self._take()

    def expect(self, token: str) -> None:
        """Take a token that must be the next; ValueError if another one is."""
        if (found := self._take()) != token:
            raise ValueError(f"{self._ddl}: expected {token!r}, found {found!r}")

    def _name(self) -> str:
        if not (name := self._take()).isidentifier():
            raise ValueError(f"{self._ddl}: expected the name of a column, found {name!r}")
        return name

    def _type(self) -> pa.DataType:
        name = self._take().upper()
        if name == "ARRAY":
            self.expect("<")
            element = self._type()
            self.expect(">")
            return pa.list_(element)
        if name == "STRUCT":
            self.expect("<")
            fields = self.fields(separator=":")
            self.expect(">")
            return pa.struct(fields)
        if name not in _TYPES:
            known = ", ".join((*_TYPES, "ARRAY", "STRUCT"))
            raise ValueError(f"{self._ddl}: expected one of {known}, found {name!r}")
        return _TYPES[name]

    def _take(self) -> str:
        return self._rest.pop(0) if len(self._rest) > 1 else self._rest[0]
