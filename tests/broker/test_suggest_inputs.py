"""`inputs suggest` on a real broker: records as Debezium and Connect write them, and worse ones."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardpost.embedded import demo
from shardpost.errors import ShardpostError, UsageError
from shardpost.holders.readable_values import ReadableValues
from shardpost.holders.suggested_input import suggested
from shardpost.kafka.record_pages import newest_records
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.command_line import CommandLineHere
from tests.support.installed import installed

ROW = {"id": 7, "customer_id": "c1", "symbol": "AAPL", "qty": "5.50", "mic": "NASDAQ"}
PATHS = {
    "Client": "customer_id",
    "Ticker": "symbol",
    "Amount": "cast(qty AS decimal(38,9))",
    "Exchange": "mic",
}
# A row of PostgreSQL as Debezium 2.7 writes it through Connect's JSON converter.
SOURCE = {
    "version": "2.7.3.Final",
    "connector": "postgresql",
    "name": "bank",
    "ts_ms": 1764000000000,
    "snapshot": "false",
    "db": "bank",
    "sequence": '["24023119","24023128"]',
    "schema": "public",
    "table": "positions",
    "txId": 555,
    "lsn": 24023128,
    "xmin": None,
}
FIELDS = [{"type": "int64", "optional": False, "field": "id"}]
STRUCT = {"type": "struct", "fields": FIELDS, "optional": False, "name": "bank.positions.Envelope"}


def event(op: str, before: object, after: object) -> dict[str, Any]:
    times = {"ts_ms": 1764000000123, "ts_us": 1764000000123456, "ts_ns": 1764000000123456789}
    made = {"before": before, "after": after, "source": SOURCE, "transaction": None}
    return {"schema": STRUCT, "payload": made | {"op": op} | times}


@pytest.fixture
def ready(settings: Settings) -> Settings:
    own = settings.model_copy(update={"partitions": 2})
    apply_topics(installed(own))
    return own


def put(ready: Settings, *records: tuple[bytes | None, bytes | None]) -> None:
    producer = installed(ready).kafka.producer()
    for number, (key, value) in enumerate(records):
        producer.produce(ready.topic("positions"), value, key, number % 2)
    assert producer.flush(10) == 0


GOOD = json.dumps(ROW).encode()
AVRO = b"\0\0\0\0\x07rest"


@pytest.mark.parametrize(
    ("records", "error", "why"),
    [
        ([], ShardpostError, "topic .*: expected records with values, found none"),
        (
            [(b"7", None)],
            ShardpostError,
            "topic .*: expected records with values, found only tombstones",
        ),
        (
            [(b"7", b"\xff\xfe"), (b"8", b"")],
            ShardpostError,
            r"\[0\]@0: expected one JSON object, found b'\\xff\\xfe'",
        ),
        ([(b"7", b"[1]")], ShardpostError, r"expected one JSON object, found b'\[1\]'"),
        (
            [(b"7", AVRO)],
            UsageError,
            r"\[0\]@0: schema ids/7 of the value: expected a registry, found none",
        ),
    ],
)
def test_records_of_which_no_entry_comes_are_refused(
    ready: Settings, records: Any, error: type[ShardpostError], why: str
) -> None:
    put(ready, *records)
    with pytest.raises(error, match=why):
        suggested(installed(ready), "positions", None)


def test_tombstones_and_records_that_cannot_be_read_are_left_out(ready: Settings) -> None:
    put(ready, (b"7", GOOD), (b"8", None), (b"9", b"{"), (None, GOOD))
    found = suggested(installed(ready), "positions", None)
    assert (found.mapping.fields, found.notes, found.lacks) == (PATHS, {}, False)


def test_keys_of_two_formats_are_refused(ready: Settings) -> None:
    put(ready, (b"7", GOOD), (b'{"id": 8}', GOOD))
    why = r"expected keys of one format, found .* at .*@0 and .*: write all in one"
    with pytest.raises(ShardpostError, match=why):
        suggested(installed(ready), "positions", None)


def test_debezium_through_connects_converter_needs_nothing_else(
    ready: Settings, shardpost: CommandLineHere
) -> None:
    keys = [{"schema": STRUCT, "payload": {"id": number}} for number in (7, 8)]
    events = [event("r", None, ROW), event("d", ROW | {"id": 8}, None)]
    records = [
        (json.dumps(key).encode(), json.dumps(value).encode())
        for key, value in zip(keys, events, strict=True)
    ]
    put(ready, *records, (records[1][0], None))
    for name in ("positions", ready.topic("positions")):
        printed = shardpost("inputs", "suggest", name)
        assert yaml.safe_load(printed) == {
            "positions": {
                "envelope": "debezium",
                "fields": {
                    own: path.replace("cast(", "cast(after.") if "(" in path else f"after.{path}"
                    for own, path in PATHS.items()
                },
            }
        }


def test_json_is_the_entry_and_what_is_said_of_it(
    ready: Settings, shardpost: CommandLineHere
) -> None:
    row = {name: one for name, one in ROW.items() if name != "symbol"} | {"mic": 1}
    put(ready, (b"7", json.dumps(row).encode()))
    found = shardpost.json("inputs", "suggest", "positions", "--json", code=3)
    assert found["positions"]["fields"]["Exchange"] == "cast(mic AS string)"
    assert {*found["notes"]} == {"Ticker", "names"}


def test_what_lacks_needs_a_person_and_what_is_no_topic_or_url_is_refused(
    ready: Settings, shardpost: CommandLineHere
) -> None:
    put(ready, (b"7", b'{"symbol": "AAPL"}'))
    assert "# Client: not found" in shardpost("inputs", "suggest", "positions", code=3)
    line = shardpost.refused("inputs", "suggest", "position", code=2)
    assert line.endswith("did you mean positions?")
    code, _, err = shardpost.answer("inputs", "suggest", "positions", "--registry", "ftp://x")
    assert (code, "expected a URL such as https://host:port" in err) == (2, True)


def test_the_demo_in_avro_is_read_as_its_own_file_says(
    ready: Settings, shardpost: CommandLineHere, tmp_path: Path
) -> None:
    with demo.schema_registry() as url:
        (file := tmp_path / "inputs.yml").write_text(demo.INPUTS.format(url=url))
        avro = ready.model_copy(update={"inputs": file})
        demo.produce(avro, (*demo.POSITIONS, demo.MOVED, demo.CLOSED))
        printed = shardpost("inputs", "suggest", "positions", "--registry", url)
        values, topic = ReadableValues(installed(avro)), avro.topic("positions")
        records = newest_records(installed(avro).kafka, topic, 100)
        shown = [json.loads(values.read(one).json or b"") for one in records]
    assert yaml.safe_load(printed) == yaml.safe_load(file.read_text())
    first = {"id": "1", "customer_id": "client1", "symbol": "AAPL", "qty": 100, "mic": "NASDAQ"}
    assert sorted(one["op"] for one in shown) == [*"ccccccd"]
    assert {"before": None, "after": first, "op": "c"} in shown
