"""A table's columns, which are declared once as Spark SQL DDL, as an Arrow schema."""

import re

import pyarrow as pa

from shardpost.delta.table import Table

_TYPES = {
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
_TOKEN = re.compile(r"\s*(?:`(?P<quoted>\w+)`|(?P<word>\w+)|(?P<mark>[<>,:]))")


def arrow_schema(table: Table) -> pa.Schema:
    """Return the schema of a table; ValueError for DDL that no table here uses."""
    return arrow_schema_of(table.columns)


def arrow_schema_of(ddl: str) -> pa.Schema:
    """Return the schema of columns in DDL, such as `a STRING, b ARRAY<STRUCT<c: INT>>`."""
    reader = _Reader(ddl)
    fields = reader.fields(between="")
    reader.expect("")
    return pa.schema(fields)


class _Reader:
    """Reads DDL from left to right; the last token is ""."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens = [found[found.lastgroup or 0] for found in _TOKEN.finditer(ddl)]
        self._tokens.append("")

    def fields(self, *, between: str) -> list[pa.Field]:
        """Read `name TYPE, …`; within a struct a colon stands between name and type."""
        found = []
        while True:
            name = self._take()
            if between:
                self.expect(between)
            found.append(pa.field(name, self._type()))
            if self._tokens[0] != ",":
                return found
            self._take()

    def expect(self, token: str) -> None:
        """Take a token that has to be there."""
        if (found := self._take()) != token:
            raise ValueError(f"{self._ddl}: expected {token!r}, found {found!r}")

    def _type(self) -> pa.DataType:
        name = self._take().upper()
        if name == "ARRAY":
            return pa.list_(self._bracketed())
        if name == "STRUCT":
            self.expect("<")
            fields = self.fields(between=":")
            self.expect(">")
            return pa.struct(fields)
        if name not in _TYPES:
            raise ValueError(f"{self._ddl}: expected one of {', '.join(_TYPES)}, found {name!r}")
        return _TYPES[name]

    def _bracketed(self) -> pa.DataType:
        self.expect("<")
        inner = self._type()
        self.expect(">")
        return inner

    def _take(self) -> str:
        return self._tokens.pop(0) if len(self._tokens) > 1 else self._tokens[0]
