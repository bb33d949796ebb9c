"""The JSON Schemas of topics that users are given, and records that they have to be true of."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from shardpost.checkout import SCHEMAS
from shardpost.kafka.records import Outgoing, Record, header_bytes

BYTE_FOR_BYTE = ("dead-letters", "retries", "parking-lot")  # whose values are any bytes


@cache
def schema(topic: str) -> dict[str, Any]:
    return dict(json.loads((SCHEMAS / f"{topic}.json").read_text()))


def problems(topic: str, record: Outgoing | Record) -> list[str]:
    """Return what a record has that the schema of its topic has not."""
    form = schema(topic)
    checker = Draft202012Validator.FORMAT_CHECKER
    headers = {name: (header_bytes(raw) or b"").decode() for name, raw in record.headers}
    of_headers = form["$defs"].get("headers", {"maxProperties": 0})
    wrong = [*Draft202012Validator(of_headers, format_checker=checker).iter_errors(headers)]
    if topic not in BYTE_FOR_BYTE:
        value = None if record.value is None else json.loads(record.value)
        wrong += Draft202012Validator(form, format_checker=checker).iter_errors(value)
    return [f"{topic} {record.key!r}: {one.message}" for one in wrong]


def require_valid(topic: str, records: Iterable[Outgoing | Record]) -> int:
    """Require that a schema is true of records; return how many there are."""
    found = [*records]
    assert [text for record in found for text in problems(topic, record)] == []
    return len(found)
