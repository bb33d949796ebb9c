"""Values that name a schema of a registry, as a person sees them."""

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from shardpost.holders.readable_values import Readable, ReadableValues
from shardpost.kafka.records import Header, Record
from shardpost.page.value_layout import laid_out_by_schema
from shardpost.settings import Settings
from tests.support.installed import installed
from tests.unit.test_registered_values import AHEAD, avro

FILE = "positions: {format: avro, registry: {url: http://registry.test}}\n"
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
SCHEMA = {
    "type": "record",
    "name": "P",
    "fields": [
        {"name": "client", "type": "string"},
        {"name": "amount", "type": MONEY},
        {"name": "half", "type": "double"},
        {"name": "raw", "type": "bytes"},
    ],
}
VALUE = AHEAD + avro(
    SCHEMA, {"client": "größe", "amount": Decimal("1.50"), "half": math.nan, "raw": b"\0"}
)
AS_JSON = '{"client": "größe", "amount": "1.50", "half": NaN, "raw": "AA=="}'


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Play a registry; return what it was asked for."""
    asked: list[str] = []

    def get(method: str, url: str, **_: Any) -> httpx.Response:
        asked.append(url.removeprefix("http://registry.test/"))
        request = httpx.Request(method, url)
        if asked[-1] == "schemas/ids/7":
            return httpx.Response(200, json={"schema": json.dumps(SCHEMA)}, request=request)
        if asked[-1] == "schemas/ids/9":
            raise httpx.ConnectError("refused")
        return httpx.Response(404, json={"error_code": 40403}, request=request)

    monkeypatch.setattr(httpx, "request", get)
    return asked


def values(folder: Path, text: str = FILE) -> ReadableValues:
    (file := folder / "inputs.yaml").write_text(text)
    own = Settings(home=folder, inputs=file, kafka_timeout=0.1)
    return ReadableValues(installed(own))


def record(value: bytes | None, *headers: Header, topic: str = "positions") -> Record:
    return Record(b"k", value, headers, 0, topic, 0, 0)


def test_a_value_is_json_by_its_schema_which_is_asked_for_once(
    tmp_path: Path, asked: list[str]
) -> None:
    read = values(tmp_path).read
    expected = Readable(VALUE, "AVRO of schema ids/7, as JSON", AS_JSON.encode())
    letter = record(VALUE, ("origin-topic", b"positions"), topic="dead-letters")
    assert [read(record(VALUE)), read(letter)] == [expected] * 2
    assert asked == ["schemas/ids/7"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (VALUE + b"\0", "schema ids/7: expected a value of it, found ValueError: 1 more bytes"),
        (AHEAD, "schema ids/7: expected a value of it, found EOFError"),
        (
            b"\0\0\0\0\x08",
            "schema ids/8: expected one of Avro, JSON or Protobuf, found none in the registry",
        ),
    ],
)
def test_bytes_that_are_none_of_their_schema_stay_as_they_are(
    tmp_path: Path, asked: list[str], value: bytes, kind: str
) -> None:
    found = values(tmp_path).read(record(value))
    assert (found.shown, found.json) == (value, None)
    assert (found.kind or "").startswith(f"bytes: {kind}")


@pytest.mark.parametrize(
    ("value", "topic", "text"),
    [
        (b"{}", "positions", FILE),
        (None, "positions", FILE),
        (VALUE, "clients", FILE),
        (VALUE, "dead-letters", FILE),
        (VALUE, "positions", "positions: {format: avro}"),
    ],
)
def test_other_values_are_as_they_were(
    tmp_path: Path, asked: list[str], value: bytes | None, topic: str, text: str
) -> None:
    assert values(tmp_path, text).read(record(value, topic=topic)) == Readable(value)
    assert asked == []


def test_a_registry_that_is_away_is_waited_for_once(tmp_path: Path, asked: list[str]) -> None:
    own, value = values(tmp_path), b"\0\0\0\0\x09x"
    assert own.read(record(value)).kind == "bytes of schema ids/9, whose registry is away"
    before = len(asked)
    assert own.read(record(value)) == Readable(value)
    assert len(asked) == before


def test_the_size_is_that_of_the_value_and_not_of_its_json() -> None:
    layout = laid_out_by_schema(Readable(b"\0abc", "AVRO of schema ids/7, as JSON", b'{"a":1}'), 99)
    assert (layout.kind, layout.text, layout.size) == (
        "AVRO of schema ids/7, as JSON",
        '{\n  "a": 1\n}',
        4,
    )
    plain = laid_out_by_schema(Readable(None), 99)
    assert (plain.kind, plain.size) == ("null", None)
