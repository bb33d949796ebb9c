"""Arrow schemas from the one declaration of a table's columns."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from shardpost.delta.arrow_schema import arrow_schema, arrow_schema_of
from shardpost.delta.table import Table
from shardpost.maintenance.stored_tables import TABLES

AT = datetime(2026, 11, 16, 12, tzinfo=UTC)


def test_every_type_that_is_declared_has_its_arrow_type() -> None:
    ddl = "a STRING, `b` BINARY, c BOOLEAN, d INT, e BIGINT, f TIMESTAMP, g ARRAY<STRING>"
    assert arrow_schema_of(ddl) == pa.schema(
        [
            ("a", pa.string()),
            ("b", pa.binary()),
            ("c", pa.bool_()),
            ("d", pa.int32()),
            ("e", pa.int64()),
            ("f", pa.timestamp("us", tz="UTC")),
            ("g", pa.list_(pa.string())),
        ]
    )


def test_an_array_of_structs_keeps_the_names_of_its_fields() -> None:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    found = arrow_schema_of("headers ARRAY<STRUCT<key: STRING, value: BINARY>>, more INT")
    assert found == pa.schema([("headers", pa.list_(pair)), ("more", pa.int32())])


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_declared_table_has_a_schema(table: Table) -> None:
    names = arrow_schema(table).names
    assert len(set(names)) == len(names) > 0


def test_rows_come_back_from_arrow_as_they_were() -> None:
    rows = [
        {"at": AT, "number": 1, "ids": ["1", "x"]},
        {"at": None, "number": None, "ids": []},
    ]
    schema = arrow_schema_of("at TIMESTAMP, number BIGINT, ids ARRAY<STRING>")
    assert pa.Table.from_pylist(rows, schema).to_pylist() == rows


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("", "expected the name of a column, found ''"),
        ("a", "expected one of STRING, .*, found ''"),
        ("a STRNG", "found 'STRNG'"),
        ("a DECIMAL(10, 2)", r"found '\(10, 2\)'"),
        ("a STRING; b INT", "found '; b INT'"),
        ("a STRING,", "expected the name of a column, found ''"),
        ("a STRING b INT", "expected '', found 'b'"),
        ("a: STRING", "found ':'"),
        ("< STRING", "expected the name of a column, found '<'"),
        ("a ARRAY", "expected '<', found ''"),
        ("a ARRAY<STRING", "expected '>', found ''"),
        ("a ARRAY<STRING>>", "expected '', found '>'"),
        ("a STRUCT<b STRING>", "expected ':', found 'STRING'"),
        ("a STRUCT<>", "expected the name of a column, found '>'"),
    ],
)
def test_ddl_that_no_table_has_is_refused_and_quoted(ddl: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        arrow_schema_of(ddl)
    assert str(refused.value).startswith(f"{ddl}: ")
