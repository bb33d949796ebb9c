"""An entry of SHARDPOST_INPUTS that is made from records: what it finds, and what it says else."""

import json
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shardpost.holders.model.input_mapping import (
    InputMapping,
    Registry,
    names_of,
    read_mappings,
)
from shardpost.holders.suggested_input import Read, Suggestion, suggestion
from shardpost.values.topic_names import INPUTS, TopicName

PLAIN = {"Client": "client1", "Ticker": "AAPL", "Amount": 100, "Exchange": "NASDAQ"}
ROW = {"id": 7, "customer_id": "c1", "symbol": "AAPL", "qty": 5, "mic": "NASDAQ"}
PATHS = {"Client": "customer_id", "Ticker": "symbol", "Amount": "qty", "Exchange": "mic"}
REGISTRY = Registry(url="http://registry:8081")
TEXT_KEY = ("text", ("7",))


def read_again(found: Suggestion) -> InputMapping:
    """Return the entry as the reader of SHARDPOST_INPUTS has it."""
    mappings = read_mappings(Path("inputs.yaml"), "\n".join(found.lines()))
    mapping = mappings.get(found.name, InputMapping())
    assert mapping == found.mapping
    return mapping


def of_rows(*rows: Any, name: TopicName = "positions") -> Suggestion:
    return suggestion(name, TEXT_KEY, ("json", rows), None)


def debezium(row: Any) -> dict[str, Any]:
    return {"before": None, "after": row, "source": {"name": "bank"}, "op": "c"}


def connect(value: Any) -> dict[str, Any]:
    return {"schema": {"type": "struct"}, "payload": value}


WORDS = {
    "Client": [["client"], ["client", "id"], ["customer", "id"], ["account"]],
    "Ticker": [["ticker"], ["stock", "symbol"], ["instrument", "id"]],
    "Amount": [["amount"], ["quantity"], ["qty"], ["number", "of", "shares"]],
    "Exchange": [["exchange"], ["mic"], ["market", "code"]],
}
STYLES = [
    "_".join,
    lambda words: "_".join(words).upper(),
    lambda words: "-".join(words),
    lambda words: "".join(map(str.title, words)),
    lambda words: words[0] + "".join(map(str.title, words[1:])),
]
ABOVE = ["trade", "details", "payload_v2", "größe", "a b", "x`y", "key", "value", "after"]


@st.composite
def rows_of_any_form(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw a row, and what of it each of our fields is."""
    style, row, values = draw(st.sampled_from(STYLES)), dict[str, Any](), dict[str, Any]()
    for field, known in WORDS.items():
        words = draw(st.sampled_from(known))
        is_nested = len(words) > 1 and draw(st.booleans())
        names = [style([one]) for one in words] if is_nested else [style(words)]
        names[:0] = draw(st.lists(st.sampled_from(ABOVE), max_size=3))
        values[field] = len(values) if field == "Amount" else f"of {field}"
        inner = reduce(lambda found, name: found.setdefault(name, {}), names[:-1], row)
        inner[names[-1]] = values[field]
    return row, values


@given(rows_of_any_form(), st.sampled_from(["none", "connect", "debezium", "both"]))
def test_the_right_fields_are_found_however_they_are_named_and_nested(
    drawn: tuple[dict[str, Any], dict[str, Any]], envelope: str
) -> None:
    row, values = drawn
    value = debezium(row) if envelope in ("debezium", "both") else row
    value = connect(value) if envelope in ("connect", "both") else value
    found = of_rows(value)
    assert not found.lacks, found
    mapping = read_again(found)
    raw, sources = json.dumps(value).encode(), mapping.sources("positions")
    assert {name: mapping.found_in(raw, source) for name, source in sources.items()} == values


def test_a_topic_of_debezium_in_connects_json_is_recognized() -> None:
    keys = ("json", [connect({"id": 7})])
    found = suggestion("positions", keys, ("json", [connect(debezium(ROW))]), None)
    fields = {own: f"after.{path}" for own, path in PATHS.items()}
    expected = {"envelope": "debezium", "fields": fields}
    assert yaml.safe_load("\n".join(found.lines())) == {"positions": expected}
    read_again(found)


def test_values_and_keys_of_avro_are_of_the_registry() -> None:
    keys, values = ("avro", [{"id": 7}]), ("avro", [debezium(ROW)])
    found = read_again(suggestion("positions", keys, values, REGISTRY))
    assert (found.format, found.envelope, found.key) == ("avro", "debezium", "key")
    assert (found.registry, found.format_of("key")) == (REGISTRY, "avro")


@pytest.mark.parametrize(
    ("value_format", "key", "expected"),
    [
        ("json", TEXT_KEY, {}),
        ("avro", TEXT_KEY, {"key_format": "text"}),
        ("json", ("json", ["7"]), {"key_format": "json"}),
        ("json", ("json", [{"id": 7}]), {"key_format": "json"}),
        ("json", ("json", [connect(7)]), {"key_format": "json", "key": "key.payload"}),
        ("json", ("avro", [{"a": 7, "b": 8}]), {"key_format": "avro"}),
        ("avro", ("avro", [7]), {}),
    ],
)
def test_the_form_of_keys_is_said_where_it_is_not_the_default(
    value_format: str, key: Read, expected: dict[str, str]
) -> None:
    found = suggestion("positions", key, (value_format, [ROW]), REGISTRY)
    form = read_again(found).form
    assert {name: form[name] for name in ("key_format", "key") if name in form} == expected


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"qty": "1.50"}, "cast(qty AS decimal(38,9))"),
        ({"qty": Decimal("1.50")}, "qty"),
        ({"qty": None}, "qty"),
        ({"qty": "AIw=", "shares": 3}, "shares"),
        ({"qty": b"\0", "shares": 3}, "shares"),
        ({"qty": [1], "shares": 3}, "shares"),
        ({"total amount": 3}, "`total amount`"),
        ({"true": 1, "amount": 3}, "amount"),
        ({"fee_amount": 1, "qty": 3}, "qty"),
        ({"key": {"amount": 3}}, "value.key.amount"),
    ],
)
def test_an_amount_is_a_number_at_the_likest_path_or_cast_to_one(
    given_: dict[str, Any], expected: str
) -> None:
    found = of_rows({name: ROW[name] for name in ("customer_id", "symbol", "mic")} | given_)
    assert found.mapping.fields["Amount"] == expected
    read_again(found)


def test_a_client_with_other_types_is_cast() -> None:
    row = {"person": {"fullName": "Anna", "mail": "a@x.org"}, "opt_in": 1, "locale": "de"}
    found = of_rows(row, {**row, "opt_in": 0}, name="clients")
    assert read_again(found).fields == {
        "Name": "person.fullName",
        "Email": "person.mail",
        "Subscribed": "cast(opt_in AS boolean)",
        "Language": "locale",
    }


def test_a_language_is_a_path_or_left_out() -> None:
    found = of_rows({"name": "Anna", "newsletter": True, "lang": 7}, name="clients")
    assert {*read_again(found).fields} == {"Name", "Subscribed"}


def test_a_number_that_is_an_id_is_cast_to_text() -> None:
    assert of_rows(ROW | {"customer_id": 12}).mapping.fields["Client"] == (
        "cast(customer_id AS string)"
    )


def test_the_name_of_a_client_is_not_taken_for_its_id() -> None:
    found = of_rows(
        {name: one for name, one in ROW.items() if name != "customer_id"} | {"client_name": "Anna"}
    )
    assert "Client" not in found.mapping.fields
    assert found.lacks


def test_what_is_not_found_is_a_comment() -> None:
    row = {"symbol": "AAPL", "qty": 5, "a\x1bb": 1}
    found = of_rows(row)
    assert found.lacks
    *_, client, exchange, names = found.lines()
    not_found = "not found: add its path, or an expression"
    assert [client, exchange] == [f"    # Client: {not_found}", f"    # Exchange: {not_found}"]
    assert names == "    # names: symbol, qty"
    assert read_again(found).fields == {"Ticker": "symbol", "Amount": "qty"}


def test_records_without_keys_lack_them() -> None:
    found = suggestion("positions", ("", ()), ("json", [ROW]), None)
    assert found.lacks
    assert found.notes["key"] == "none found: records without one are rejected"


def test_plain_records_need_no_entry() -> None:
    found = of_rows(PLAIN)
    assert [*found.lines()] == ["positions: {}"]
    assert read_again(found) == InputMapping()


@pytest.mark.parametrize("name", INPUTS)
def test_nothing_is_found_where_nothing_is_alike(name: TopicName) -> None:
    found = of_rows({"a": "x"}, name=name)
    assert (found.lacks, read_again(found)) == (True, InputMapping())
    assert {*found.notes} == {*names_of(name), "names"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(),
        lambda inner: (
            st.dictionaries(
                st.text() | st.sampled_from(["op", "after", "payload", "schema", "qty"]), inner
            )
            | st.lists(inner)
        ),
    )
)
def test_any_value_gives_an_entry_that_can_be_read(value: Any) -> None:
    read_again(of_rows(value, connect(value), debezium(value)))
