"""What has become of the fields of a schema of Avro, and which schemas are refused."""

import json
from typing import Any

import pytest

from shardpost.holders.model.avro_schema import END, MOST_FIELDS, AvroSchema


def schema(node: object, *asked_for: str) -> AvroSchema:
    return AvroSchema(json.dumps(node), frozenset(asked_for))


def record(name: str, /, **fields: object) -> dict[str, Any]:
    made = [{"name": one, "type": kind} for one, kind in fields.items()]
    return {"type": "record", "name": name, "fields": made}


def decimal(scale: int, precision: int = 9, size: int | None = None) -> dict[str, Any]:
    kind = {"type": "fixed", "name": "Sum", "size": size} if size else {"type": "bytes"}
    return {**kind, "logicalType": "decimal", "precision": precision, "scale": scale}


MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{n}"} for n in ("millis", "micros"))


def difference(old: AvroSchema, newest: AvroSchema) -> str | None:
    try:
        old.require_meanings_of(newest)
    except ValueError as error:
        return str(error)
    return None


def test_a_field_that_means_something_else_now_is_named() -> None:
    old = schema(record("P", amount=decimal(2), at=["null", MILLIS], id="string"))
    assert difference(old, old) is None
    assert difference(old, schema(record("P", amount=decimal(2, 20), at=MILLIS))) is None
    assert difference(old, schema(record("P", amount=decimal(4)))) == (
        "expected amount to be a decimal of scale 4, as in the newest one,"
        " found a decimal of scale 2"
    )
    expected = "expected at to be timestamp-micros, as in the newest one, found timestamp-millis"
    assert difference(old, schema(record("P", amount=decimal(2), at=MICROS))) == expected
    expected = "expected at to be plain, as in the newest one, found timestamp-millis"
    assert difference(old, schema(record("P", at="long"))) == expected
    whole = difference(schema(decimal(2)), schema(decimal(3))) or ""
    assert whole.startswith("expected the value to be a decimal of scale 3")


def test_a_renamed_field_is_compared_with_what_it_is_called_now() -> None:
    old = schema(record("P", inner=record("I", qty=decimal(2))))
    new = record("P", data=record("I", amount=decimal(4)))
    new["fields"][0]["aliases"] = ["inner"]
    new["fields"][0]["type"]["fields"][0]["aliases"] = ["qty"]
    assert (difference(old, schema(new)) or "").startswith(
        "expected inner.qty to be a decimal of sc"
    )


def test_fields_of_a_type_that_comes_again_are_compared_wherever_it_stands() -> None:
    row = record("Row", qty=decimal(2)) | {"namespace": "shop"}
    old = schema({**record("Envelope", before=["null", row], after=["null", "shop.Row"])})
    later = record("Row", qty=decimal(3)) | {"namespace": "shop"}
    new = schema(record("Envelope", after=["null", later]))
    assert (difference(old, new) or "").startswith("expected after.qty to be")


def test_a_field_has_the_name_that_is_asked_for() -> None:
    inner = record("I", new="string")
    inner["fields"][0]["aliases"] = ["old", "older"]
    node = record("P", one=inner, many={"type": "array", "items": "I"}, old="string")
    assert schema(node, "older", "new").whole == schema(node).whole
    written = json.loads(schema(node, "older").whole)["fields"][0]["type"]["fields"][0]["type"]
    assert written["fields"] == [
        {"name": "older", "type": "string", "aliases": ["new", "old", "older"]}
    ]
    plain = record("P", one=inner)
    assert difference(schema(plain), schema(plain, "old")) is None


def test_what_a_record_has_of_itself_ends() -> None:
    tree = record("Tree", label="string", children={"type": "array", "items": "Tree"})
    assert difference(schema(tree), schema(tree)) is None


def test_decimals_are_read_with_all_their_digits() -> None:
    def read(node: object) -> Any:
        return json.loads(schema(node).whole)["fields"][0]["type"]

    assert read(decimal(2, 9)) == decimal(2, 38)
    assert read(decimal(2, 50)) == decimal(2, 38)
    assert read(decimal(2, 9, 4)) == decimal(2, 9, 4)  # no more fit into its bytes
    assert read(decimal(2, 9, 9)) == decimal(2, 21, 9)
    map_of = {"type": "map", "values": decimal(0, 5)}
    assert read(["null", map_of]) == ["null", {**map_of, "values": decimal(0, 38)}]
    whole = json.loads(schema("string").whole)
    assert whole["fields"][1]["type"]["size"] == len(END)


def test_a_schema_with_too_many_fields_or_levels_is_refused() -> None:
    many = record("P", **{f"f{n}": "string" for n in range(MOST_FIELDS)})
    with pytest.raises(ValueError, match="expected at most 10000 fields"):
        schema(many)
    doubling: object = "string"
    for n in range(20):  # each has twice as many fields as the one in it
        doubling = record(f"R{n}", a=doubling, b=f"R{n - 1}" if n else "string")
    with pytest.raises(ValueError, match="expected at most 10000 fields"):
        schema(doubling)
    deep = '{"type":"array","items":' * 5000 + '"string"' + "}" * 5000
    with pytest.raises(ValueError, match="nests less deep"):
        AvroSchema(deep)
