"""What it costs that inputs have another form: the same positions, each form beside plain JSON."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro

from bench import kafka, stream
from bench.holders import require
from bench.ours import Ours, steps
from bench.stream import Record
from bench.table import Case, markdown
from shardpost.embedded import demo
from shardpost.settings import Settings
from tests.support.protobuf import files_of, message_class

SCHEMA = {
    "type": "record",
    "name": "Trade",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "symbol", "type": "string"},
        {"name": "qty", "type": "long"},
        {"name": "mic", "type": "string"},
    ],
}
PARSED: Any = fastavro.parse_schema(SCHEMA)
OWN_NAMES = {
    "Client": "customer",
    "Ticker": "symbol",
    "Amount": "qty",
    "Exchange": "mic",
}
MAGIC = b"\x00\x00\x00\x00\x01"  # Confluent's wire format: a zero, then the id of the schema
PATHS = OWN_NAMES | {"Client": "customer.id"}
EXPRESSIONS = {
    "Client": "trim(customer)",
    "Ticker": "upper(symbol)",
    "Amount": "cast(qty AS decimal(38,0))",
    "Exchange": "upper(mic)",
}

PROTO = """syntax = "proto3";
message Trade { int64 id = 1; string customer = 2; string symbol = 3; int64 qty = 4;
  string mic = 5; }"""

Written = tuple[str, str | bytes | None, int]


@dataclass(frozen=True)
class Form:
    """How the records of positions look: their entry of SHARDPOST_INPUTS, and a value's bytes."""

    name: str
    entry: dict[str, Any] | None
    value: Callable[[dict[str, Any]], str | bytes]


def _nested(position: dict[str, Any]) -> str:
    return json.dumps(position | {"customer": {"id": position["customer"]}})


def _avro(position: dict[str, Any]) -> bytes:
    written = BytesIO(MAGIC)
    written.seek(len(MAGIC))
    fastavro.schemaless_writer(written, PARSED, position)
    return written.getvalue()


def _protobuf(position: dict[str, Any]) -> bytes:
    # Behind the id, the index of the first type.
    return MAGIC + b"\x00" + bytes(_trade()(**position).SerializeToString())


@cache
def _trade() -> Any:
    return message_class(files_of(PROTO), "Trade")


def _forms(of_avro: str, of_protobuf: str) -> list[Form]:
    avro = {"format": "avro", "key_format": "text", "registry": {"url": of_avro}}
    protobuf = avro | {"format": "protobuf", "registry": {"url": of_protobuf}}
    return [
        Form("JSON, by paths", {"fields": PATHS}, _nested),
        Form("JSON, by expressions", {"fields": EXPRESSIONS}, json.dumps),
        Form("Avro, by paths", avro | {"fields": OWN_NAMES}, _avro),
        Form("Protobuf, by paths", protobuf | {"fields": OWN_NAMES}, _protobuf),
    ]


def _in_form(form: Form, records: Iterator[Record]) -> Iterator[Written]:
    for key, value, at in records:
        if form.entry is None or value is None:
            yield key, value, at
        else:
            plain = json.loads(value)
            named = {theirs: plain[ours] for ours, theirs in OWN_NAMES.items()}
            position = {"id": plain["PositionId"], **named}
            yield key, form.value(position), at


def measure(settings: Settings, size: int, more: int, runs: int) -> None:
    """Measure each form from nothing and after `more` records, in turn; print the table."""
    Ours(settings, "ours-warm-up", "warm-up").warm_up()
    documents = {"schema": json.dumps(SCHEMA)}, {"schemaType": "PROTOBUF", "schema": PROTO}
    of_avro, of_protobuf = (demo.schema_registry({"value": one}) for one in documents)
    with of_avro as avro, of_protobuf as protobuf:
        forms = [Form("plain JSON", None, json.dumps), *_forms(avro, protobuf)]
        ours = {form.name: _application(settings, form, size) for form in forms}
        full = [Case(f"{form.name}, from nothing", size) for form in forms]
        increments = [Case(f"{form.name}, {more:,} more", more) for form in forms]
        for number in range(runs):
            for form, case in zip(forms, full, strict=True):
                ours[form.name].reset()
                case.add(ours[form.name].compact())
                _check(ours[form.name], size, number * more)
            first, last = size + number * more, (number + 1) * more
            for form, case in zip(forms, increments, strict=True):
                records = stream.records(size, first, last)
                one = ours[form.name]
                kafka.produce(
                    one.settings, one.settings.topic("positions"), _in_form(form, records)
                )
                case.add(one.compact())
                _check(one, size, last)
    rows = [case.cells(full[:1]) for case in full]
    rows += [case.cells(increments[:1]) for case in increments]
    print("\n" + markdown(rows))
    for case in (*full, *increments):
        shares = ", ".join(f"{name} {seconds:.1f}" for name, seconds in steps(case.runs[-1].log))
        print(f"{case.name}, the last run: {case.runs[-1].processor:.1f} s of processors; {shares}")


def _application(settings: Settings, form: Form, size: int) -> Ours:
    slug = form.name.lower().replace(", ", "-").replace(" ", "-")
    topic = f"inputs-{slug}-{size}"
    kafka.delete(settings, [topic])
    kafka.create(settings, topic)
    kafka.produce(settings, topic, _in_form(form, stream.records(size)))
    return Ours(settings, f"ours-{topic}", topic, inputs=_file(settings.home / f"{slug}.yml", form))


def _file(path: Path, form: Form) -> Path | None:
    if form.entry is None:
        return None
    path.write_text(json.dumps({"positions": form.entry}))  # JSON is YAML
    return path


def _check(ours: Ours, size: int, more: int) -> None:
    expected = stream.holders(stream.records(size, more=more))
    found = kafka.latest(ours.settings, ours.settings.topic("share-holders"))
    require(expected, found, ours.settings.home.name)
