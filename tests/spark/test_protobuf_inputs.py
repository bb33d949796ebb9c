"""Inputs in Protobuf, by Confluent's serializers: decoded, and through whole compactions."""

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from confluent_kafka.schema_registry import SchemaReference
from hypothesis import HealthCheck, Phase, given, strategies
from hypothesis import settings as example_settings
from pyspark.sql import Row, SparkSession

from shardpost.embedded import daemons
from shardpost.errors import ShardpostError
from shardpost.holders.model.input_mapping import InputMapping, Part
from shardpost.holders.readable_values import ReadableValues
from shardpost.holders.spark.registered import registered
from shardpost.kafka.schema_registry import Schema, SchemaRegistry
from shardpost.settings import Settings
from tests.spark.test_avro_inputs import AvroStream
from tests.spark.test_mapped_inputs import KILLS, agree_throughout, mapped
from tests.spark.test_registered import found
from tests.support.command_line import CommandLine
from tests.support.compacting import agree, held, run
from tests.support.decoding import RAW, raw_rows
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.letter_world import committed, header
from tests.support.protobuf import PROTO3, files_of, message_class
from tests.support.record_streams import RECORDS, Again, Growth
from tests.support.reference import Raw, closed, position, produce
from tests.support.schema_registry import Registry, serialized

PROTOBUF = InputMapping(format="protobuf")
NO_ID = "expected the id of a schema, found bytes "
TRADE = PROTO3 + "message Other {} message Trade { string client = 1; uint64 qty = 2; }"


@cache
def class_of(text: str, name: str) -> Any:
    return message_class(files_of(text), name)


def decoded(
    spark: SparkSession,
    registry: SchemaRegistry,
    values: Sequence[bytes | None],
    part: Part = "value",
) -> list[Row]:
    """Return (text, problem) of each."""
    rows = [(one, None) if part == "key" else (b"k", one) for one in values]
    return found(registered(raw_rows(spark, rows), "positions", PROTOBUF, registry), part)


def test_values_are_json_by_the_schemas_that_they_were_written_with(
    spark: SparkSession, registry: Registry
) -> None:
    """One as a descriptor, by Python's serializer; one as a text, which refers to another."""
    topic = f"positions-{uuid4().hex}"
    own = registry.protobuf_serializer(class_of(TRADE, "Trade"))
    good = serialized(own, topic, class_of(TRADE, "Trade")(client="c1", qty=2**64 - 1))
    unit = PROTO3 + "package u; message Unit { string name = 1; }"
    registry.register(f"unit-{topic}", unit, "PROTOBUF")
    text = PROTO3 + 'import "u/unit.proto"; message Later { u.Unit client = 1; }'
    refers = SchemaReference("u/unit.proto", f"unit-{topic}", 1)
    number = registry.register(f"{topic}-other", text, "PROTOBUF", refers)
    later = b"\0" + struct.pack(">I", number) + b"\0\x0a\x04\x0a\x02c2"
    avro = registry.register(f"{topic}-avro", '"string"')
    away = b"\0\x7f\xff\xff\xff"
    whys = {
        good: None,
        later: None,
        None: None,
        b"": NO_ID,
        b'{"client":"c1"}': f"{NO_ID}7B22636C69656E74",
        good[:5]: f"{place(good)}expected a value of it, found ValueError: no indexes of a",
        good[:-1]: f"{place(good)}expected a value of it, found DecodeError: Error parsing",
        good + b"\0": f"{place(good)}expected a value of it, found DecodeError: Error parsing",
        good + b"\x18\x01": f"{place(good)}expected a value of it, found ValueError: field 3, w",
        good[:5] + b"\2\7": f"{place(good)}expected a value of it, found ValueError: no indexes",
        good[:5] + b"\2\6": f"{place(good)}expected a value of it, found ValueError: message (3,)",
        good[:5] + b"\0" + good[7:]: f"{place(good)}expected a value of it, found ValueError: fie",
        away + good[5:]: "schema ids/2147483647: expected one of PROTOBUF, found none in the regi",
        b"\0" + struct.pack(">I", avro): f"schema ids/{avro}: expected one of PROTOBUF, found AVR",
    }
    rows = decoded(spark, registry.asked(topic), [*whys])
    assert [row[0] and json.loads(row[0]) for row in rows] == [
        {"client": "c1", "qty": 2**64 - 1},
        {"client": {"name": "c2"}},
        *[None] * (len(whys) - 2),
    ]
    for row, why in zip(rows, whys.values(), strict=True):
        assert row[1] is why or str(row[1]).startswith(why or "nothing")


def place(value: bytes) -> str:
    return f"schema ids/{int.from_bytes(value[1:5])}: "


class ByGuid:
    """A registry that knows some schemas, by their GUIDs; Apicurio has none."""

    def __init__(self, *texts: str) -> None:
        self.guids = [uuid4() for _ in texts]
        self._texts = dict(zip(self.guids, texts, strict=True))

    def schema(self, place: str) -> Schema | None:
        text = self._texts.get(UUID(place.removeprefix("guids/")))
        return Schema("PROTOBUF", text) if text else None


def test_the_indexes_are_behind_the_guid_in_a_header(spark: SparkSession) -> None:
    own = ByGuid(TRADE)
    frame, payload = b"\1" + own.guids[0].bytes + b"\2\2", b"\x0a\x02c1"
    at, value = datetime(2026, 11, 16, tzinfo=UTC), {"client": "c1", "qty": 0}
    rows = [
        (b"k", payload, 0, 0, at, [("__value_schema_id", frame)]),
        (b"k", frame + payload, 0, 1, at, None),
    ]
    asked = cast("SchemaRegistry", own)
    made = found(registered(spark.createDataFrame(rows, RAW), "positions", PROTOBUF, asked))
    assert [(json.loads(row[0]), row[1]) for row in made] == [(value, None)] * 2


HOSTILE = {
    "message": "expected one of Protobuf, found line 1:",
    PROTO3 + "message A { " * 500 + "}" * 500: "expected one of Protobuf, found line 1:",
    PROTO3 + 'import "../../x.proto"; message A {}': "expected one of Protobuf, found ",
    "AAAA": "expected one of Protobuf, found ",
    PROTO3 + f"message A {{ int32 {'a' * 10_000} = 1; repeated A b = 2; }}": "expected a value of ",
}


def test_schemas_and_bytes_that_mean_harm_have_a_reason_and_the_others_are_read(
    spark: SparkSession,
) -> None:
    own = ByGuid(TRADE, *HOSTILE)
    good, *bad = (b"\1" + guid.bytes for guid in own.guids)
    payloads = [
        b"\0" + b"\x12\xff\xff\xff\x07" * 50_000,
        b"\0" + b"\x12\x00" * 200_000,
        b"\0\x12\xff\xff\xff\xff\x07",
        b"\x80" * 100_000,
    ]
    values = [*(one + more for one in bad for more in payloads), good + b"\2\2"]
    *rows, last = decoded(spark, cast("SchemaRegistry", own), values)
    assert json.loads(last[0]) == {"client": "", "qty": 0}
    assert [row[0] for row in rows] == [None] * len(rows)
    expected = [why for why in HOSTILE.values() for _ in payloads]
    assert [why in row[1] for row, why in zip(rows, expected, strict=True)] == [True] * len(rows)
    assert max(len(row[1]) for row in rows) < 500


CUSTOMER = "message Customer { string id = 1; } "
KEY = PROTO3 + "message Key { int64 id = 1; }"
FIELDS = "Customer customer = 1; string ticker = 2; "
# A field is added, one is renamed, one becomes optional and moves.
VERSIONS = [
    f"{PROTO3}message Position {{ {FIELDS}{more} }} {CUSTOMER}"
    for more in (
        "int64 qty = 3; string mic = 4;",
        "int64 qty = 3; string mic = 4; string book = 5;",
        "int64 quantity = 3; string mic = 4; string book = 5;",
        "int64 quantity = 3; optional string mic = 6; string book = 5;",
    )
]
FILE = """\
positions:
  format: protobuf
  key_format: {key}
  registry:
    url: {url}
  fields:
    Client: customer.id
    Ticker: ticker
    Amount: cast(coalesce(quantity, qty) AS decimal(38, 0))
    Exchange: mic
"""


@dataclass
class ProtobufStream(AvroStream):
    """A stream whose positions Confluent's serializers write, by now this schema, now that."""

    def _serialized(self, form: dict[str, Any], part: str = "value") -> bytes:
        assert self.registry is not None
        topic, text = self.settings.topic("positions"), VERSIONS[self._version]
        if part == "key":
            text = PROTO3 + "message Key { string id = 1; }"
        made = class_of(text, "Key" if part == "key" else "Position")
        known = made.DESCRIPTOR.fields_by_name
        message = made(**{name: one for name, one in form.items() if name in known})
        found = serialized(self.registry.protobuf_serializer(made), topic, message, part)
        self.registry.client.set_compatibility(f"{topic}-{part}", "NONE")
        return found


@pytest.mark.one_of("histories cut into any runs")
@example_settings(
    max_examples=up_to(2, 1),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(strategies.lists(strategies.lists(RECORDS, max_size=15), min_size=1, max_size=3), KILLS)
def test_any_history_in_protobuf_with_kills_equals_the_fold_of_the_plain_one(
    fresh: Callable[[], Settings],
    registry: Registry,
    history: list[list[Raw | Again | Growth]],
    kills: list[str],
) -> None:
    settings = mapped(fresh(), FILE.format(key="protobuf", url=registry.url))
    agree_throughout(ProtobufStream(settings, registry=registry), history, kills)


def test_evolution_needs_no_rebuild(fresh: Callable[[], Settings], registry: Registry) -> None:
    settings = mapped(fresh(), FILE.format(key="protobuf", url=registry.url))
    stream = ProtobufStream(settings, registry=registry)
    for n in range(4):  # each batch by the next version of the schema
        stream.send([position(str(5 * n + one), f"client{n}", "NASDAQ") for one in range(5)])
        run(settings)
        agree(settings, stream.fold)
    assert len(held(settings)) == 4


def test_a_registry_that_is_away_changes_nothing_and_makes_no_letter(
    fresh: Callable[[], Settings], registry: Registry
) -> None:
    settings = fresh()
    away = f"http://127.0.0.1:{daemons.choose_port()}"
    waiting = mapped(settings, FILE.format(key="protobuf", url=away))
    stream = ProtobufStream(waiting, registry=registry)
    stream.send([position("1", "client1", "NASDAQ"), closed("2")])
    with pytest.raises(ShardpostError, match=r"expected an answer within 2 s .* refused"):
        run(waiting.model_copy(update={"kafka_timeout": 2}))
    assert [*committed(settings, settings.topic("dead-letters"))] == []
    run(mapped(settings, FILE.format(key="protobuf", url=registry.url)))
    agree(settings, stream.fold)


def test_an_entry_made_from_protobuf_reads_the_records_and_people_read_the_letters(
    fresh: Callable[[], Settings], registry: Registry, tmp_path: Path
) -> None:
    settings = fresh()
    topic, made = settings.topic("positions"), class_of(VERSIONS[0], "Position")
    row = {"customer": {"id": "client1"}, "ticker": "AAPL", "qty": 2**60, "mic": "NASDAQ"}
    key = serialized(
        registry.protobuf_serializer(class_of(KEY, "Key")), topic, class_of(KEY, "Key")(id=7), "key"
    )
    good = serialized(registry.protobuf_serializer(made), topic, made(**row))
    bad = good + b"\x48\x01"
    produce(settings, [Raw("positions", key, good)])
    shardpost = CommandLine(settings.environ())
    printed = shardpost("inputs", "suggest", topic, "--registry", registry.url)
    (file := tmp_path / "inputs.yaml").write_text(printed)
    own = CommandLine(settings.environ() | {"SHARDPOST_INPUTS": str(file)})
    [record] = own.json("inputs", "check", "positions", "--json")["positions"]
    assert (record["kind"], record["key"]) == ("upsert", "7")
    assert record["fields"]["Client"] == "client1"
    produce(settings, [Raw("positions", key, bad)])
    mapped_ = settings.model_copy(update={"inputs": file})
    run(mapped_)
    assert held(mapped_) == {"client1": ["7"]}
    [letter] = committed(settings, settings.topic("dead-letters"))
    assert letter.value == bad
    why = "expected a value of it, found ValueError: field 9, which Position has not"
    assert why in (header(letter, "error") or "")
    values = ReadableValues(installed(mapped_))
    assert why in (values.read(letter).kind or "")
    shown = values.read(letter._replace(value=good))
    assert json.loads(shown.json or b"") == row
