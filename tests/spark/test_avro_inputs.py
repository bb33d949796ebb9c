"""Inputs whose records have schemas in a registry, through whole compactions and commands."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, strategies
from hypothesis import settings as example_settings

from shardpost.delta import snapshots
from shardpost.embedded import daemons
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from tests.spark.test_mapped_inputs import KILLS, MappedStream, agree_throughout, mapped
from tests.support.command_line import CommandLine
from tests.support.compacting import agree, held, run
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.jobs_here import CommandsHere
from tests.support.letter_world import committed, header
from tests.support.record_streams import RECORDS, Again, Growth, placed
from tests.support.reference import POSITION, Raw, closed, position, produce
from tests.support.schema_registry import Registry, serialized

FILE = """\
positions:
  format: {format}
  registry:
    url: {url}
  fields:
    Client: customer.id
    Ticker: ticker
    Amount: qty
    Exchange: mic
"""
DRAFT = "http://json-schema.org/draft-07/schema#"
KEY = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "id", "type": "string"}]})


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def text(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "string", **more}


CUSTOMER = {"name": "customer", "type": record("Customer", text("id"))}
QTY = {"name": "qty", "type": "long"}
QUANTITY = {"name": "quantity", "type": "long", "aliases": ["qty"]}
OPTIONAL = {"name": "mic", "type": ["null", "string"], "default": None}
# A field is added, one is renamed, one becomes optional.
VERSIONS = [
    record("Position", CUSTOMER, text("ticker"), QTY, text("mic")),
    record("Position", CUSTOMER, text("ticker"), QTY, text("mic"), text("book", default="A")),
    record("Position", CUSTOMER, text("ticker"), QUANTITY, text("mic")),
    record("Position", OPTIONAL, CUSTOMER, text("ticker"), QUANTITY),
]


def is_right(form: object) -> bool:
    kinds: dict[str, Any] = {**POSITION}
    return isinstance(form, dict) and all(
        isinstance(form.get(name), kind) and not isinstance(form.get(name), bool)
        for name, kind in kinds.items()
    )


@dataclass
class AvroStream(MappedStream):
    """A stream whose positions Confluent's serializers write, by now this schema, now that."""

    registry: Registry | None = None

    def _as_written(self, record: Raw, value: bytes | None) -> Raw:
        if record.topic != "positions":
            return replace(record, value=value)
        key = self._serialized({"id": (record.key or b"").decode()}, "key")
        made = replace(record, key=key, value=None if value is None else self._value(value))
        return placed(made, self._partitions)

    def _serialized(self, form: dict[str, Any], part: str = "value") -> bytes:
        """Return a key, or a value by that one of the versions whose turn it is."""
        assert self.registry is not None
        schema = VERSIONS[self._version]
        known = {one["name"] for one in schema["fields"]}
        made = {name: one for name, one in form.items() if name in known}
        serializer = self.registry.serializer(KEY if part == "key" else json.dumps(schema))
        topic = self.settings.topic("positions")
        return serialized(serializer, topic, form if part == "key" else made, part)

    @property
    def _version(self) -> int:
        return min(len(self._sent) // 5, len(VERSIONS) - 1)

    def _value(self, plain: bytes) -> bytes:
        try:
            form = json.loads(plain)
        except ValueError:
            form = None
        right: dict[str, Any] = {"Client": "c", "Ticker": "T", "Amount": 1}
        right = form if is_right(form) else right
        names = {"ticker": "Ticker", "qty": "Amount", "quantity": "Amount", "mic": "Exchange"}
        value = {own: right.get(name, "X") for own, name in names.items()}
        whole = int(right["Amount"])  # the holders do not tell
        value |= {"customer": {"id": right["Client"]}, "book": "B", "qty": whole, "quantity": whole}
        good = self._serialized(value)
        if is_right(form):
            return good
        bad = [plain, good[:-1], good + b"\0", good[:4], b"\0\x7f\xff\xff\xff" + good[5:], b"\0"]
        return bad[len(plain) % len(bad)]


@pytest.mark.one_of("histories cut into any runs")
@example_settings(
    max_examples=up_to(2, 1),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(strategies.lists(strategies.lists(RECORDS, max_size=15), min_size=1, max_size=3), KILLS)
def test_any_history_in_avro_with_kills_equals_the_fold_of_the_plain_one(
    fresh: Callable[[], Settings],
    registry: Registry,
    history: list[list[Raw | Again | Growth]],
    kills: list[str],
) -> None:
    settings = mapped(fresh(), FILE.format(format="avro", url=registry.url))
    agree_throughout(AvroStream(settings, registry=registry), history, kills)


def test_evolution_needs_no_rebuild(fresh: Callable[[], Settings], registry: Registry) -> None:
    settings = mapped(fresh(), FILE.format(format="avro", url=registry.url))
    stream = AvroStream(settings, registry=registry)
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
    waiting = settings.model_copy(update={"kafka_timeout": 2})
    stream = AvroStream(mapped(settings, FILE.format(format="avro", url=away)), registry=registry)
    stream.send([position("1", "client1", "NASDAQ"), closed("2")])
    with pytest.raises(ShardpostError, match=r"expected an answer within 2 s .* refused"):
        run(mapped(waiting, FILE.format(format="avro", url=away)))
    assert snapshots.newest(installed(settings).tables) is None
    assert [*committed(settings, settings.topic("dead-letters"))] == []
    run(mapped(settings, FILE.format(format="avro", url=registry.url)))
    agree(settings, stream.fold)


def test_a_schema_that_the_registry_does_not_know_makes_a_letter_that_names_it(
    fresh: Callable[[], Settings], registry: Registry
) -> None:
    settings = mapped(fresh(), FILE.format(format="avro", url=registry.url))
    stream = AvroStream(settings, registry=registry)
    stream.send([position("1", "client1", "NASDAQ")])
    [sent] = stream._written.values()
    bad = b"\0\x7f\xff\xff\xff" + (sent.value or b"")[5:]
    produce(settings, [replace(sent, value=bad)])
    run(settings)
    assert held(settings) == {"client1": ["1"]}
    [letter] = committed(settings, settings.topic("dead-letters"))
    assert letter.value == bad
    assert "schema ids/2147483647: expected one of AVRO, found none in the registry" in (
        header(letter, "error") or ""
    )


def test_tombstones_need_no_schema(fresh: Callable[[], Settings], registry: Registry) -> None:
    """As where no subject has the name of the topic, and nothing else is new."""
    text_keys = FILE.format(format="avro", url=registry.url) + "  key_format: text\n"
    settings = mapped(fresh(), text_keys)
    produce(settings, [closed("1")])
    assert run(settings)["rejected"] == 0
    produce(settings, [Raw("positions", b"1", b"{}")])
    assert run(settings)["rejected"] == 1


def test_json_with_a_schema_is_read_as_json(
    fresh: Callable[[], Settings], registry: Registry
) -> None:
    settings = mapped(fresh(), FILE.format(format="json-schema", url=registry.url))
    topic = settings.topic("positions")
    numbers = [
        registry.register(f"{topic}-{part}", json.dumps({"$schema": DRAFT, "type": kind}), "JSON")
        for part, kind in (("key", "string"), ("value", "object"))
    ]
    key, value = (b"\0" + struct.pack(">I", number) for number in numbers)
    form = b'{"customer":{"id":"client1"},"ticker":"T","qty":1.5,"mic":"NASDAQ"}'
    produce(
        settings,
        [
            Raw("positions", key + b'"1"', value + form),
            Raw("positions", key + b'"2"', form),
            Raw("positions", key + b'"3"', value + form + b"}"),
        ],
    )
    run(settings)
    assert held(settings) == {"client1": ["1"]}
    letters = committed(settings, settings.topic("dead-letters"))
    assert sorted((header(one, "error") or "")[:40] for one in letters) == [
        "Undecodable: expected one JSON object, f",
        "Undecodable: expected the id of a schema",
    ]


def test_what_comes_out_is_said_before_anything_is_written(
    fresh: Callable[[], Settings], registry: Registry
) -> None:
    settings = mapped(fresh(), FILE.format(format="avro", url=registry.url))
    stream = AvroStream(settings, registry=registry)
    stream.send([position("1", "client1", "NASDAQ"), closed("2"), Raw("positions", b"3", b"{")])
    shardpost = CommandLine(settings.environ())
    lines = shardpost("inputs", "check", "positions", "--sample", "50", code=3).splitlines()
    assert lines[0] == "positions: 3 records, 1 rejected"
    assert lines[1].split() == ["kind", "key", "Client", "Ticker", "Amount", "Exchange"]
    assert sorted(line.split() for line in lines[2:4]) == [
        ["tombstone", "2"],
        ["upsert", "1", "client1", "T", "1", "NASDAQ"],
    ]
    assert "expected a value as the newest schema has it, found bytes 00" in lines[4]
    found = CommandsHere(settings.environ()).json("inputs", "check", "--json", code=3)
    assert {name: len(records) for name, records in found.items()} == {
        "positions": 3,
        "clients": 0,
        "exchanges": 13,
    }
    assert snapshots.newest(installed(settings).tables) is None
    assert [*committed(settings, settings.topic("dead-letters"))] == []


DEBEZIUM = record(
    "Envelope",
    {"name": "before", "type": ["null", VERSIONS[1]], "default": None},
    {"name": "after", "type": ["null", "Position"], "default": None},
    text("op"),
)


def test_an_entry_made_from_avro_reads_the_records_that_it_was_made_from(
    fresh: Callable[[], Settings], registry: Registry, tmp_path: Path
) -> None:
    settings = fresh()
    topic, serializer = settings.topic("positions"), registry.serializer(json.dumps(DEBEZIUM))
    row = {"customer": {"id": "client1"}, "ticker": "AAPL", "qty": 5, "mic": "NASDAQ", "book": "A"}
    written = []
    for number, (before, after, op) in enumerate([(None, row, "c"), (row, None, "d")]):
        key = serialized(registry.serializer(KEY), topic, {"id": str(number)}, "key")
        event = {"before": before, "after": after, "op": op}
        written.append(Raw("positions", key, serialized(serializer, topic, event)))
    produce(settings, written)
    shardpost = CommandLine(settings.environ())
    refused = shardpost.refused("inputs", "suggest", "positions", code=2)
    assert "found none: add --registry URL" in refused
    printed = shardpost("inputs", "suggest", topic, "--registry", registry.url)
    (file := tmp_path / "inputs.yaml").write_text(printed)
    own = CommandLine(settings.environ() | {"SHARDPOST_INPUTS": str(file)})
    assert own("inputs", "suggest", "positions") == printed
    found = own.json("inputs", "check", "positions", "--json")["positions"]
    assert sorted((one["kind"], one["key"], one["fields"]["Client"]) for one in found) == [
        ("tombstone", "1", None),
        ("upsert", "0", "client1"),
    ]
    json_ = Raw("positions", b"2", b'{"Client":"client1"}')
    produce(settings, [json_])
    refused = own.refused("inputs", "suggest", "positions", code=1)
    assert "expected values of one format, found " in refused
