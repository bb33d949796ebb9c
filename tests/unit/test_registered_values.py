"""Keys and values that name a schema, read for a person: right ones, and bytes that mean harm."""

import io
import json
import struct
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from shardpost.kafka.records import Header, Record
from shardpost.kafka.registered_values import registered
from shardpost.kafka.schema_registry import SchemaRegistry

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
POSITION = {
    "type": "record",
    "name": "P",
    "fields": [
        {"name": "client", "type": "string"},
        {"name": "amount", "type": ["null", MONEY]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
VALUE = {"client": "größe", "amount": Decimal("1.50"), "at": datetime(2026, 11, 16, tzinfo=UTC)}
GUID = "6f2a0d7c-4f1b-4f7e-9d34-0a3d0a1f1c55"


def registry(text: object, kind: str = "AVRO", *referenced: object) -> SchemaRegistry:
    """Return a client that knows one schema already."""
    schema = {"schemaType": kind, "schema": text if kind == "PROTOBUF" else json.dumps(text)}
    known: dict[str, Any] = {f"schemas/{place}": schema for place in ("ids/7", f"guids/{GUID}")}
    known["schemas/ids/8"] = None
    for number, one in enumerate(referenced):
        known[f"subjects/s{number}/versions/1"] = {"schema": json.dumps(one)}
    schema["references"] = [{"subject": f"s{n}", "version": 1} for n in range(len(referenced))]
    return SchemaRegistry("http://registry.test", "t", 1, _known=known)


def avro(schema: Any, value: object) -> bytes:
    written = io.BytesIO()
    schemaless_writer(written, parse_schema(schema), value)
    return written.getvalue()


def record(value: bytes | None, *headers: Header) -> Record:
    return Record(b"k", value, headers, 0, "positions", 0, 0)


def read(value: bytes, own: SchemaRegistry, *headers: Header) -> Any:
    named = registered(record(value, *headers), "value")
    assert named is not None
    return named.read(own)


AHEAD = b"\0" + struct.pack(">I", 7)


@pytest.mark.parametrize(
    ("ahead", "headers"),
    [
        (AHEAD, ()),
        (b"\1" + bytes.fromhex(GUID.replace("-", "")), ()),
        (b"", [("__value_schema_id", AHEAD)]),
        (AHEAD, [("__key_schema_id", b"\0\0\0\0\1")]),
    ],
)
def test_a_value_is_read_by_the_schema_that_it_names(ahead: bytes, headers: list[Header]) -> None:
    found = read(ahead + avro(POSITION, VALUE), registry(POSITION), *headers)
    assert found == ("AVRO", VALUE)


def test_a_schema_may_refer_to_others() -> None:
    outer = {"type": "record", "name": "O", "fields": [{"name": "p", "type": "P"}]}
    payload = avro(POSITION, VALUE)
    assert read(AHEAD + payload, registry(outer, "AVRO", POSITION)) == ("AVRO", {"p": VALUE})


def test_json_with_a_schema_is_read_as_json() -> None:
    assert read(AHEAD + b'{"a":1}', registry({}, "JSON")) == ("JSON", {"a": 1})


TRADE = 'syntax = "proto3"; message Other {} message Trade { string client = 1; int64 qty = 2; }'


@pytest.mark.parametrize(
    ("ahead", "headers"),
    [(AHEAD + b"\2\2", ()), (b"", [("__value_schema_id", AHEAD + b"\2\2")])],
)
def test_protobuf_is_read_by_the_schema_and_the_indexes(
    ahead: bytes, headers: list[Header]
) -> None:
    own = registry(TRADE, "PROTOBUF")
    found = read(ahead + b"\x0a\x01c\x10\x05", own, *headers)
    assert found == ("PROTOBUF", {"client": "c", "qty": 5})
    with pytest.raises(ValueError, match=r"schema ids/7: .* found DecodeError"):
        read(AHEAD + b"\2\2\x0a\x05", own)


@pytest.mark.parametrize("value", [None, b"", b"{}", b"\0\0\0\7", b"\2\0\0\0\7"])
def test_what_names_no_schema_is_none(value: bytes | None) -> None:
    assert registered(record(value), "value") is None


NODE = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
NOTHING = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "null"}]}
ENDLESS = avro("long", 1 << 60)


@pytest.mark.parametrize(
    ("schema", "payload", "why"),
    [
        (POSITION, b"", "expected a value of it, found EOFError"),
        (POSITION, avro(POSITION, VALUE) + b"\0", "1 more bytes behind it"),
        ("string", ENDLESS + b"abc", "EOFError"),
        (NODE, b"\2" * 1_000_000 + b"\0", "RecursionError"),
        ({"type": "array", "items": "null"}, ENDLESS, "more items than bytes"),
        ({"type": "array", "items": NOTHING}, ENDLESS, "more items than bytes"),
        ({"type": "map", "values": "null"}, ENDLESS, "EOFError"),
        ({"type": "nonsense"}, b"", "UnknownType"),
        ([], b"\0", "IndexError"),
    ],
)
def test_bytes_and_schemas_that_mean_harm_are_errors(schema: Any, payload: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=f"^schema ids/7: .*{why}"):
        read(AHEAD + payload, registry(schema))


def test_a_schema_that_is_unknown_or_of_another_kind_is_said() -> None:
    with pytest.raises(ValueError, match=r"schema ids/8: .* found none in the registry"):
        read(b"\0\0\0\0\x08", registry(POSITION))
    with pytest.raises(ValueError, match=r"schema ids/7: .* found XML"):
        read(AHEAD, registry("", "XML"))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_an_error(payload: bytes) -> None:
    fields = [
        {"name": "a", "type": {"type": "array", "items": ["null", "string", "N"]}},
        {"name": "m", "type": {"type": "map", "values": MONEY}},
        {"name": "n", "type": NODE},
    ]
    schema = {"type": "record", "name": "All", "fields": [fields[2], *fields[:2]]}
    with suppress(ValueError):
        kind, found = read(AHEAD + payload, registry(schema))
        assert (kind, {*found}) == ("AVRO", {"a", "m", "n"})
