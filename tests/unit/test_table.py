"""Columns, rows and values of a table from the one dataclass that declares it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import pyarrow as pa
import pytest

from shardpost.delta.arrow_schema import arrow_rows, arrow_schema
from shardpost.delta.table import (
    Array,
    Int32,
    Json,
    Mark,
    Named,
    Table,
    columns,
    columns_of,
    from_row,
    to_row,
)
from shardpost.maintenance.stored_tables import TABLES

AT = datetime(2026, 11, 16, 12, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Look:
    at: datetime
    ends: Mapping[str, Mapping[int, int]]
    colours: tuple[Colour, ...] = ()


@dataclass(frozen=True)
class Counts:
    holders: int = 0
    share: float = 0.5


@dataclass(frozen=True)
class Thing:
    number: Annotated[int, Named("thing")]
    at: datetime | None
    counts: Counts
    colour: Colour
    is_open: bool
    shard: Int32 | None
    raw: bytes = b""
    ids: tuple[str, ...] = ()
    look: Json[Look | None] = None
    folders: Annotated[Mapping[str, str], Mark.JSON, Mark.EMPTY_AS_NULL] = field(
        default_factory=dict
    )


THINGS = Table("things", columns_of(Thing))
LEAST = Thing(1, None, Counts(), Colour.RED, is_open=False, shard=None)
FULL = Thing(
    *(2, AT, Counts(7, 0.25), Colour.RED, True, 3, b"\xff", ("b", "a")),
    look=Look(AT, {"positions": {0: 9}}, (Colour.RED,)),
    folders={"positions": "positions.2"},
)


def test_every_type_has_its_columns() -> None:
    assert THINGS.columns == (
        *columns("thing BIGINT, at TIMESTAMP, holders BIGINT, share DOUBLE, colour STRING"),
        *columns("is_open BOOLEAN, shard INT, raw BINARY"),
        ("ids", Array("STRING")),
        *columns("look STRING, folders STRING"),
    )
    assert arrow_schema(THINGS) == pa.schema(
        [
            ("thing", pa.int64()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("holders", pa.int64()),
            ("share", pa.float64()),
            ("colour", pa.string()),
            ("is_open", pa.bool_()),
            ("shard", pa.int32()),
            ("raw", pa.binary()),
            ("ids", pa.list_(pa.string())),
            ("look", pa.string()),
            ("folders", pa.string()),
        ]
    )


@pytest.mark.parametrize("thing", [LEAST, FULL])
def test_a_value_comes_back_from_its_row(thing: Thing) -> None:
    [row] = arrow_rows(THINGS, [thing]).to_pylist()
    assert from_row(Thing, row) == thing
    assert [*to_row(thing)] == THINGS.names


def test_an_array_of_structs_keeps_the_names_of_its_fields() -> None:
    headers = Array(columns("key STRING, value BINARY"))
    table = Table("things", (("headers", headers), ("more", "INT")))
    assert table.ddl == "`headers` ARRAY<STRUCT<key: STRING, value: BINARY>>, `more` INT"
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    assert arrow_schema(table) == pa.schema([("headers", pa.list_(pair)), ("more", pa.int32())])


def test_json_is_as_it_always_was() -> None:
    row = to_row(FULL)
    assert json.loads(row["look"]) == {
        "at": "2026-11-16T12:00:00+00:00",
        "ends": {"positions": {"0": 9}},
        "colours": ["red"],
    }
    assert row["folders"] == '{"positions": "positions.2"}'
    assert (to_row(LEAST)["look"], to_row(LEAST)["folders"]) == (None, None)


def test_a_column_that_a_row_lacks_has_the_default() -> None:
    row = to_row(FULL)
    del row["raw"]
    assert from_row(Thing, row | {"ids": None}) == replace(FULL, raw=b"", ids=())
    with pytest.raises(TypeError, match="number"):
        from_row(Thing, row | {"thing": None})


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_declared_table_has_a_schema(table: Table) -> None:
    assert arrow_schema(table).names == table.names
    assert len({*table.names}) == len(table.names) > 0
