"""Values with a schema in a registry: each decodes exactly, or has a reason."""

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from confluent_kafka.schema_registry import SchemaReference
from pyspark.sql import DataFrame, Row, SparkSession

from shardpost.errors import ShardpostError
from shardpost.holders.model.input_mapping import InputMapping, Part
from shardpost.holders.spark.registered import registered
from shardpost.kafka.schema_registry import Schema, SchemaRegistry
from tests.support.decoding import RAW, raw_rows
from tests.support.schema_registry import Registry, schema_registry, serialized

AVRO = InputMapping(format="avro")
JSON_SCHEMA = '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}'


def record(name: str, /, **fields: object) -> dict[str, Any]:
    made = [{"name": one, "type": kind} for one, kind in fields.items()]
    return {"type": "record", "name": name, "fields": made}


@dataclass
class Topic:
    """A topic of its own, whose values are written by Confluent's serializers."""

    registry: Registry
    name: str

    def write(self, schema: object, value: object, part: str = "value") -> bytes:
        made = self.registry.serializer(json.dumps(schema))
        return serialized(made, self.name, value, part)

    def decode(
        self,
        spark: SparkSession,
        values: Sequence[bytes | None],
        mapping: InputMapping = AVRO,
        part: Part = "value",
    ) -> list[Row]:
        """Return (struct, problem) of each."""
        asked = self.registry.asked(self.name)
        rows = [(one, None) if part == "key" else (b"k", one) for one in values]
        frame = registered(raw_rows(spark, rows), "positions", mapping, asked)
        return found(frame, part)


def found(frame: DataFrame, part: str = "value") -> list[Row]:
    return frame.orderBy("offset").select(f"{part}_struct", f"{part}_problem").collect()


@pytest.fixture
def topic(registry: Registry) -> Topic:
    return Topic(registry, f"positions-{uuid4().hex}")


def without_problem(rows: Sequence[Row]) -> list[Any]:
    """Return the structs of rows that have no problem, as dicts."""
    assert [row[1] for row in rows] == [None] * len(rows)
    return [row[0].asDict(recursive=True) for row in rows]


POSITION = record("Position", Client="string", Amount="long")
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}
ALL_TYPES = record(
    "All",
    text="string",
    flag="boolean",
    whole="int",
    long="long",
    half="float",
    double="double",
    bytes="bytes",
    fixed={"type": "fixed", "name": "Two", "size": 2},
    word={"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]},
    list={"type": "array", "items": "string"},
    map={"type": "map", "values": "int"},
    none=["null", "string"],
    some=["null", "string"],
    either=["string", "long"],
    number=["int", "long"],
    amount=MONEY,
    day={"type": "int", "logicalType": "date"},
    at={"type": "long", "logicalType": "timestamp-micros"},
    id={"type": "string", "logicalType": "uuid"},
    inner=record("Inner", a="string"),
)


def test_all_types_of_avro_decode_exactly(spark: SparkSession, topic: Topic) -> None:
    at, own_id = datetime(2026, 11, 16, 9, 30, 0, 123456, tzinfo=UTC), uuid4()
    value = {
        "text": "größe",
        "flag": True,
        "whole": -(2**31),
        "long": 2**63 - 1,
        "half": 0.5,
        "double": 0.1,
        "bytes": b"\x00\xff",
        "fixed": b"ab",
        "word": "SELL",
        "list": ["a", "b"],
        "map": {"k": 1},
        "none": None,
        "some": "x",
        "either": 5,
        "number": 7,
        "amount": Decimal("9" * 29 + "." + "9" * 9),
        "day": date(2026, 11, 16),
        "at": at,
        "id": own_id,
        "inner": {"a": "b"},
    }
    [read] = without_problem(topic.decode(spark, [topic.write(ALL_TYPES, value)]))
    expected = value | {
        "fixed": bytearray(b"ab"),
        "bytes": bytearray(b"\x00\xff"),
        "either": {"member_string": None, "member_long": 5},
        "id": str(own_id),
        "at": at.replace(tzinfo=None),
    }
    assert read == expected


def test_numbers_that_are_none_stay_visible(spark: SparkSession, topic: Topic) -> None:
    schema = record("P", a="double", b="float")
    values = [topic.write(schema, {"a": one, "b": one}) for one in (math.nan, math.inf)]
    nan, inf = without_problem(topic.decode(spark, values))
    assert math.isnan(nan["a"])
    assert math.isnan(nan["b"])
    assert (inf["a"], inf["b"]) == (math.inf, math.inf)


LARGEST = Decimal(f"{'9' * 36}.99")


def avro_bytes(value: bytes) -> bytes:
    """Return bytes as Avro writes them, up to 63."""
    return bytes([2 * len(value)]) + value


def test_decimals_decode_to_the_last_digit_or_not_at_all(spark: SparkSession, topic: Topic) -> None:
    """Spark's own takes 64 bits of one that has up to 18 digits, and says nothing."""
    schema = record("P", a={**MONEY, "precision": 9, "scale": 2})
    framed = topic.write(schema, {"a": Decimal("1.25")})[:5]
    unscaled = (125, -1, 10**37, 10**38 - 1, 10**38, 2**64 + 125)
    values = [framed + avro_bytes(one.to_bytes(17, "big", signed=True)) for one in unscaled]
    rows = topic.decode(spark, values)
    read = [row[0] and row[0].a for row in rows]
    assert read == [
        Decimal("1.25"),
        Decimal("-0.01"),
        Decimal(10**35),
        LARGEST,
        None,
        Decimal(2**64 + 125).scaleb(-2),
    ]
    assert [row[1] is None for row in rows] == [one is not None for one in read]


def test_a_schema_with_more_digits_than_spark_has_decodes_what_fits(
    spark: SparkSession, topic: Topic
) -> None:
    schema = record("P", a={**MONEY, "precision": 60, "scale": 2})
    framed = topic.write(schema, {"a": Decimal("1.25")})[:5]
    values = [framed + avro_bytes(one.to_bytes(17, "big")) for one in (10**38 - 1, 10**38)]
    good, bad = topic.decode(spark, values)
    assert (good[0].a, good[1]) == (LARGEST, None)
    assert bad[0] is None
    assert "as the newest schema has it" in bad[1]


def test_older_values_are_read_as_the_newest_schema_has_them(
    spark: SparkSession, topic: Topic
) -> None:
    old = topic.write(POSITION, {"Client": "c1", "Amount": 5})
    added = {"name": "Mic", "type": "string", "default": "XNAS"}
    optional = {"name": "Amount", "type": ["null", "long"], "default": None}
    renamed = {"name": "Customer", "type": "string", "aliases": ["Client"]}
    newer = {**POSITION, "fields": [added, optional, renamed]}
    new = topic.write(newer, {"Mic": "XLON", "Amount": None, "Customer": "c2"})
    expected = [
        {"Mic": "XNAS", "Amount": 5, "Client": "c1"},
        {"Mic": "XLON", "Amount": None, "Client": "c2"},
    ]
    by_alias = InputMapping(format="avro", fields={"Client": "upper(Client)"})
    for mapping in (AVRO, by_alias):
        assert without_problem(topic.decode(spark, [old, new], mapping)) == expected
        # The newest one is known, whatever records are new.
        assert without_problem(topic.decode(spark, [old], mapping)) == expected[:1]
    by_name = InputMapping(format="avro", fields={"Client": "Customer"})
    renamed_now = [{"Mic": "XNAS", "Amount": 5, "Customer": "c1"}]
    assert without_problem(topic.decode(spark, [old], by_name)) == renamed_now


def test_an_alias_within_a_row_is_known(spark: SparkSession, topic: Topic) -> None:
    """As of Debezium, whose row comes twice under one name."""
    row = record("Row", id="string")
    both = record("Envelope", before=["null", row], after=["null", "Row"])
    old = topic.write(both, {"before": None, "after": {"id": "7"}})
    later = {**row, "fields": [{"name": "key", "type": "string", "aliases": ["id"]}]}
    newer = record("Envelope", before=["null", later], after=["null", "Row"])
    topic.registry.client.set_compatibility(f"{topic.name}-value", "NONE")
    new = topic.write(newer, {"before": {"key": "7"}, "after": None})
    mapping = InputMapping(format="avro", fields={"Client": "after.id"})
    assert without_problem(topic.decode(spark, [old, new, old], mapping)) == [
        {"before": None, "after": {"id": "7"}},
        {"before": {"id": "7"}, "after": None},
        {"before": None, "after": {"id": "7"}},
    ]


def test_a_field_with_another_scale_is_refused_and_no_other(
    spark: SparkSession, topic: Topic
) -> None:
    two, four = (record("P", a={**MONEY, "scale": scale}) for scale in (2, 4))
    old = topic.write(two, {"a": Decimal("1.25")})
    topic.registry.client.set_compatibility(f"{topic.name}-value", "NONE")
    new = topic.write(four, {"a": Decimal("1.2500")})
    first, second = topic.decode(spark, [old, new])
    assert first[0] is None
    assert (
        "expected a to be a decimal of scale 4, as in the newest one, found a decimal of sc"
        in first[1]
    )
    assert (second[0].a, second[1]) == (Decimal("1.2500"), None)


def test_values_that_the_newest_schema_has_no_place_for_have_a_reason(
    spark: SparkSession, topic: Topic
) -> None:
    old = topic.write(record("P", a="string"), {"a": "5"})
    topic.registry.client.set_compatibility(f"{topic.name}-value", "NONE")
    new = topic.write(record("P", a="long"), {"a": 5})
    first, second = topic.decode(spark, [old, new])
    assert first[0] is None
    assert "as the newest schema has it, found bytes 00" in first[1]
    assert second[0].a == 5


def test_bytes_that_are_no_value_have_a_reason(
    spark: SparkSession, topic: Topic, registry: Registry
) -> None:
    good = topic.write(POSITION, {"Client": "c1", "Amount": 5})
    value = "expected a value as the newest schema has it, found "
    text = registry.register(f"{topic.name}-json", JSON_SCHEMA, "JSON")
    no_id = "expected the id of a schema, found bytes "
    expected: dict[bytes | None, str | None] = {
        good: None,
        None: None,
        b"": no_id,
        b"\x00\x00\x00": f"{no_id}000000",
        b'{"Client":"c1"}': f"{no_id}7B22436C69656E74",
        b"\x02" + good[1:]: f"{no_id}02{good[1:8].hex().upper()}",
        good + b"\x00": f"{value}more bytes behind it",
        good + good: f"{value}more bytes behind it",
        good[:-1]: f"{value}bytes {good[:8].hex().upper()}",
        good[:5]: f"{value}bytes {good[:5].hex().upper()}",
        good[:5] + b"\xff" * 12: f"{value}bytes {(good[:5] + bytes([255] * 3)).hex().upper()}",
        b"\x00\x7f\xff\xff\xff"
        + good[5:]: "schema ids/2147483647: expected one of AVRO, found none in the registry",
        b"\x00"
        + struct.pack(">I", text)
        + b"{}": f"schema ids/{text}: expected one of AVRO, found JSON",
    }
    rows = topic.decode(spark, [*expected])
    assert [row[1] for row in rows] == [*expected.values()]
    assert [row[0] for row in rows[1:]] == [None] * (len(rows) - 1)


@pytest.mark.parametrize("other", [b"M\xfcller", b"\xed\xa0\x80", b"a\xc3", b"\xbf"])
def test_no_text_of_other_bytes_becomes_another_text(
    spark: SparkSession, topic: Topic, other: bytes
) -> None:
    texts = {"type": "array", "items": "string"}
    inner = record("Inner", a="string", list=["null", texts])
    schema = record("P", text="string", inner=inner, map={"type": "map", "values": texts})
    mark = "Mark!" * 3
    for path in ("text", "a", "list", "key", "value"):
        at = {
            one: mark if one == path else "größe" for one in ("text", "a", "list", "key", "value")
        }
        value = {"text": at["text"], "map": {at["key"]: [at["value"]]}}
        value["inner"] = {"a": at["a"], "list": ["x", at["list"]]}
        good = topic.write(schema, value)
        found = other + b"x" * (len(mark) - len(other))
        rows = topic.decode(spark, [good, good.replace(mark.encode(), found)])
        assert rows[0][1] is None, path
        assert rows[1] == (None, "expected a value in UTF-8, found other bytes"), path
    alone = topic.write({"type": "string"}, mark)
    [row] = topic.decode(spark, [alone.replace(mark.encode(), found)])
    assert row[1] == "expected a value in UTF-8, found other bytes"


def test_no_cut_of_a_value_is_one(spark: SparkSession, topic: Topic) -> None:
    schema = record("P", a="string", b={"type": "array", "items": "long"}, c=["null", "double"])
    good = topic.write(schema, {"a": "text", "b": [1, 2, 300], "c": 1.5})
    cuts = [good[:end] for end in range(5, len(good))] + [good + bytes([n]) for n in range(256)]
    rows = topic.decode(spark, cuts)
    assert [row[0] for row in rows] == [None] * len(cuts)
    assert None not in [row[1] for row in rows]


def test_a_value_that_claims_to_be_huge_takes_no_memory(spark: SparkSession, topic: Topic) -> None:
    schema = record("P", a="string", b="bytes", c={"type": "array", "items": "null"})
    good = topic.write(schema, {"a": "", "b": b"", "c": []})
    huge = b"\xf0\xff\xff\xff\x0f"  # 2,147,483,640
    values = [good[:5] + b"\0" * n + huge for n in range(3)]
    rows = topic.decode(spark, [good, *values])
    assert rows[0][1] is None
    assert [row[0] for row in rows[1:]] == [None] * 3
    assert None not in [row[1] for row in rows[1:]]


def test_the_id_may_be_in_a_header(spark: SparkSession, topic: Topic) -> None:
    good = topic.write(POSITION, {"Client": "c1", "Amount": 5})
    at = datetime(2026, 11, 16, tzinfo=UTC)
    headers = [("other", b"x"), ("__key_schema_id", b"x"), ("__value_schema_id", good[:5])]
    rows = [(b"k", good[5:], 0, 0, at, headers), (b"k", good, 0, 1, at, headers)]
    asked = topic.registry.asked(topic.name)
    first, second = found(registered(spark.createDataFrame(rows, RAW), "positions", AVRO, asked))
    assert (first[0].Client, first[1]) == ("c1", None)
    assert second[0] is None


class ByGuid:
    """A registry that knows one schema, by its GUID; Apicurio has none."""

    guid = UUID("01234567-89ab-cdef-0123-456789abcdef")

    def schema(self, place: str) -> Schema | None:
        return Schema("AVRO", json.dumps(POSITION)) if place == f"guids/{self.guid}" else None

    def newest(self, *_: str) -> None:
        return None


def test_the_guid_of_a_schema_may_be_in_a_header_or_before_the_value(
    spark: SparkSession, topic: Topic
) -> None:
    value = topic.write(POSITION, {"Client": "c1", "Amount": 5})[5:]
    frame, at = b"\x01" + ByGuid.guid.bytes, datetime(2026, 11, 16, tzinfo=UTC)
    in_header = [("__value_schema_id", frame)]
    rows = [(b"k", value, 0, 0, at, in_header), (b"k", frame + value, 0, 1, at, None)]
    rows.append((b"k", b"\x01" + b"\x07" * 16 + value, 0, 2, at, None))
    asked = cast("SchemaRegistry", ByGuid())
    *good, bad = found(registered(spark.createDataFrame(rows, RAW), "positions", AVRO, asked))
    assert without_problem(good) == [{"Client": "c1", "Amount": 5}] * 2
    assert (
        bad[1]
        == f"schema guids/{UUID('07' * 16)}: expected one of AVRO, found none in the registry"
    )


@pytest.mark.parametrize(
    ("schema", "key"), [("string", "7"), ("long", 7), (record("Key", id="long"), {"id": 7})]
)
def test_keys_have_schemas_too(
    spark: SparkSession, topic: Topic, schema: object, key: object
) -> None:
    raw = topic.write(schema, key, "key")
    [row] = topic.decode(spark, [raw], part="key")
    assert row[1] is None
    assert (row[0].asDict() if isinstance(row[0], Row) else row[0].toPython()) == key


def test_a_schema_refers_to_others(spark: SparkSession, topic: Topic, registry: Registry) -> None:
    unit, money = f"unit-{topic.name}", f"money-{topic.name}"
    registry.register(unit, json.dumps(record("shop.Unit", name="string")))
    refers = SchemaReference("shop.Unit", unit, 1)
    registry.register(money, json.dumps(record("shop.Money", unit="shop.Unit")), "AVRO", refers)
    schema = json.dumps(record("P", paid="shop.Money", owed="shop.Money"))
    refers = SchemaReference("shop.Money", money, 1)
    number = registry.register(f"{topic.name}-value", schema, "AVRO", refers)
    value = b"\x00" + struct.pack(">I", number) + b"\x06USD\x06GBP"
    assert without_problem(topic.decode(spark, [value])) == [
        {"paid": {"unit": {"name": "USD"}}, "owed": {"unit": {"name": "GBP"}}}
    ]


def test_a_topic_without_a_subject_of_its_name_is_read_as_the_newest_that_it_has(
    spark: SparkSession, topic: Topic, registry: Registry
) -> None:
    """As where a subject is named after the record, and not after the topic."""
    subject, newer = f"com.acme.{topic.name}", [*POSITION["fields"]]
    newer.append({"name": "Mic", "type": "string", "default": "XNAS"})
    schemas = POSITION, {**POSITION, "fields": newer}
    old, new = (
        b"\x00" + struct.pack(">I", registry.register(subject, json.dumps(one))) for one in schemas
    )
    values = [old + b"\x04c1\x0a", new + b"\x04c2\x0a\x02X"]
    assert without_problem(topic.decode(spark, values)) == [
        {"Client": "c1", "Amount": 5, "Mic": "XNAS"},
        {"Client": "c2", "Amount": 5, "Mic": "X"},
    ]


def test_fields_in_which_a_record_comes_again_are_left_out(
    spark: SparkSession, topic: Topic
) -> None:
    tree = record("Tree", label="string", left=["null", "Tree"])
    many = {**tree, "fields": [*tree["fields"], {"name": "Client", "type": "string"}]}
    leaf = {"label": "b", "left": None, "Client": "c2"}
    value = topic.write(many, {"label": "a", "left": leaf, "Client": "c1"})
    [read] = without_problem(topic.decode(spark, [value, value[:-1]])[:1])
    assert (read["label"], read["Client"]) == ("a", "c1")


def test_large_schemas_decode(spark: SparkSession, topic: Topic) -> None:
    fields = {f"f{n}": "string" for n in range(1000)}
    wide = record("Wide", **fields)
    [read] = without_problem(
        topic.decode(spark, [topic.write(wide, {name: name for name in fields})])
    )
    assert read == {name: name for name in fields}


def test_long_names_decode(spark: SparkSession, topic: Topic) -> None:
    name = "n" * 10_000
    [read] = without_problem(
        topic.decode(spark, [topic.write(record("P", **{name: "string"}), {name: "x"})])
    )
    assert read == {name: "x"}


def test_values_of_a_schema_that_spark_cannot_read_have_a_reason(
    spark: SparkSession, topic: Topic
) -> None:
    """Of names that are one to Spark, which does not look at their case."""
    union = [record("Row", a="string"), record("ROW", a="string")]
    value = topic.write(record("P", a=union), {"a": ("Row", {"a": "x"})})
    [row] = topic.decode(spark, [value])
    assert row[0] is None
    assert "expected one that Spark can read, found" in row[1]


def test_a_registry_with_other_ids_is_asked_anew(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("restarted")
    other = record("P", a="string", b="string")
    with schema_registry(home) as first:
        old = Topic(first, "positions")
        value = old.write(other, {"a": "1", "b": "2"})
        one = old.write(record("P", b="string"), {"b": "3"}, "key")
        assert without_problem(old.decode(spark, [value])) == [{"a": "1", "b": "2"}]
    with pytest.raises(ShardpostError, match="expected an answer within 1 s"):
        registered(
            raw_rows(spark, [(b"k", value)]),
            "positions",
            AVRO,
            first.asked("positions", 1),
        )
    with schema_registry(home, first.port) as second:
        new = Topic(second, "positions")
        new.write(other, {"a": "1", "b": "2"}, "key")
        renamed = new.write(record("P", c="string"), {"c": "3"})
        assert renamed == one  # the same bytes, by another schema
        assert without_problem(new.decode(spark, [renamed])) == [{"c": "3"}]
