"""The file of SHARDPOST_INPUTS: what it says, what is wrong with it, and what comes of a change."""

import json
from pathlib import Path
from typing import Any

import pytest

from shardpost.errors import UsageError
from shardpost.holders.inputs import mappings_of, require_plain
from shardpost.holders.model.input_mapping import (
    InputMapping,
    Mappings,
    mapping_in,
    path_of,
    read_mappings,
    text_of,
)
from shardpost.holders.plausibility import problem_of
from shardpost.holders.spark.history import decoder_id
from shardpost.settings import Settings
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka

FILE = Path("inputs.yaml")
WHOLE = """\
positions:
  envelope: debezium
  key: key.id
  fields:
    Client: after.customer.id
    Exchange: upper(mic)   # ours are in capitals
    Amount: cast(qty AS decimal(38,9))
  where: book = 'OWN'
clients:
  format: avro
  registry: {url: "https://registry:8081", user: shardpost, ca: /etc/ca.pem}
exchanges:
"""


def test_what_the_file_names_is_mapped_and_what_it_leaves_out_is_plain() -> None:
    found = read_mappings(FILE, WHOLE)
    assert list(found) == ["positions", "clients"]
    positions, clients = found["positions"], found["clients"]
    assert (positions.format, positions.envelope, positions.key) == ("json", "debezium", "key.id")
    assert positions.sources("positions") == {
        "Client": "after.customer.id",
        "Ticker": "Ticker",
        "Amount": "cast(qty AS decimal(38,9))",
        "Exchange": "upper(mic)",
    }
    assert clients.registry is not None
    assert clients.registry.url == "https://registry:8081"
    assert clients.sources("clients")["Language"] == "Language"


@pytest.mark.parametrize(
    "text", ["", "# none", "positions:", "positions: {}", "positions: {fields: }"]
)
def test_a_file_that_says_nothing_changes_nothing(text: str) -> None:
    assert read_mappings(FILE, text) == {}
    assert text_of({}) is None


@pytest.mark.parametrize(
    ("given", "key_format"),
    [
        ({}, "text"),
        ({"envelope": "connect"}, "json"),
        ({"envelope": "debezium", "key_format": "text"}, "text"),
        ({"format": "avro"}, "avro"),
        ({"format": "avro", "key_format": "text"}, "text"),
    ],
)
def test_keys_are_text_beside_bare_json_and_else_what_values_are(
    given: dict[str, Any], key_format: str
) -> None:
    assert InputMapping(**given).format_of("key") == key_format


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("position: {}", "line 1: position: unknown name: did you mean positions?"),
        ("share-holders: {}", "line 1: share-holders: unknown name"),
        (
            "positions:\n  format: jsn",
            "line 2: positions.format: expected one of 'json', 'avro', 'json-schema' or"
            " 'protobuf', found 'jsn': did you mean json?",
        ),
        ("positions:\n  envelope: debezum", "line 2: positions.envelope: expected one of"),
        (
            "positions:\n  feilds: {}",
            "line 2: positions.feilds: unknown name: did you mean fields?",
        ),
        (
            "positions:\n  fields:\n    Cliant: a",
            "line 3: positions.fields.Cliant: unknown field: did you mean Client?",
        ),
        ("positions:\n  fields: {Language: a}", "positions.fields.Language: unknown field"),
        ("positions:\n  fields: [a]", "line 2: positions.fields: expected a map of names"),
        ("positions:\n  fields: {Client: [a]}", "Client: expected a single value, found ['a']"),
        ("positions:\n  fields: {Client: }", "Client: expected a value, found none"),
        ("positions:\n  where: upper((a)", "line 2: positions.where: expected ( in a pair"),
        ("positions:\n  where: a) = (b", "positions.where: expected ) in a pair"),
        ('positions:\n  where: "a = \'b"', "positions.where: expected ' in a pair"),
        ("positions:\n  key: key.id", "line 2: positions.key: expected `key` alone, as keys are"),
        ("positions:\n  key: value", "positions.key: expected a name in the value, found 'value'"),
        (
            "positions:\n  envelope: debezium\n  fields:\n    Client: after",
            "line 4: positions.fields.Client: expected a name in the value, found 'after'",
        ),
        ("clients:\n  fields: {Language: lower(l)}", "Language: expected a path, found 'lower(l)'"),
        ("positions:\n  format: avro", "line 1: positions: expected a registry, which has its"),
        (
            "positions:\n  registry: {url: 'http://r'}",
            "line 2: positions.registry: expected none, as json and text need no schemas",
        ),
        (
            "positions:\n  format: avro\n  registry: {url: r:8081}",
            "line 3: positions.registry.url: expected a URL such as https://host:port",
        ),
        (
            "positions:\n  format: avro\n  registry: {url: 'http://me:it@r'}",
            "expected a URL such as https://host:port, without a login",
        ),
        (
            "positions:\n  format: avro\n  registry: {url: 'http://r', usr: me}",
            "positions.registry.usr: unknown name: did you mean user?",
        ),
        ("positions: {}\npositions: {}", "line 2: expected YAML: 'positions' appears twice"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_what_was_expected(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_mappings(FILE, text)
    assert said in str(refused.value)
    assert str(refused.value).startswith("inputs.yaml, line ")


def test_brackets_and_quotes_in_texts_of_an_expression_are_its_own() -> None:
    text = "positions: {where: \"concat('it''s (', `a)`, \\\")\\\") = ')'\"}"
    assert read_mappings(FILE, text)["positions"].where == "concat('it''s (', `a)`, \")\") = ')'"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("customer.id", ("customer", "id")),
        ("`a.b`.`c``d`", ("a.b", "c`d")),
        ("true", None),
        ("NULL", None),
        ("upper(mic)", None),
        ("1", None),
        ("a.b c", None),
        ("'a'", None),
    ],
)
def test_a_path_is_names_with_dots_between(text: str, path: tuple[str, ...] | None) -> None:
    assert path_of(text) == path


def mappings(**given: Any) -> Mappings:
    return {"positions": InputMapping(**given)}


def test_another_mapping_is_another_decoder_and_another_registry_is_not() -> None:
    one = mappings(format="avro", registry={"url": "http://one"}, fields={"Client": "c"})
    other = mappings(format="avro", registry={"url": "http://other"}, fields={"Client": "c"})
    changed = mappings(format="avro", registry={"url": "http://one"}, fields={"Client": "d"})
    assert text_of(one) == text_of(other) != text_of(changed)
    ids = {decoder_id(text) for text in (None, text_of(one), text_of(other), text_of(changed))}
    assert len(ids) == 3


def test_a_mapping_is_what_a_snapshot_has_of_it() -> None:
    found = mappings(envelope="connect", fields={"Client": "a", "Amount": "b"}, where="c = 'd'")
    assert mapping_in(text_of(found), "positions") == found["positions"]
    assert mapping_in(text_of(found), "clients") is None
    assert mapping_in(None, "positions") is None
    swapped = mappings(envelope="connect", fields={"Amount": "b", "Client": "a"}, where="c = 'd'")
    assert hash(swapped["positions"]) == hash(found["positions"])


def test_the_setting_names_the_file_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "inputs.yaml"
    assert mappings_of(installed(Settings())) == {}
    with pytest.raises(UsageError, match=r"cannot be read: No such file.*SHARDPOST_INPUTS"):
        mappings_of(installed(Settings(inputs=file)))
    file.write_text("exchanges: {fields: {Country: land}}")
    own = installed(Settings(inputs=file))
    assert json.loads(text_of(mappings_of(own)) or "") == {
        "exchanges": {"fields": {"Country": "land"}}
    }


def test_plain_records_are_not_written_to_a_topic_of_another_form(tmp_path: Path) -> None:
    file = tmp_path / "inputs.yaml"
    file.write_text("clients: {envelope: connect}\nexchanges: {format: json}")
    own = installed(Settings(inputs=file))
    with pytest.raises(UsageError, match="topic clients: expected plain records"):
        require_plain(own, "clients")
    require_plain(own, "exchanges")
    require_plain(own, "positions")


def test_a_corrected_value_is_judged_as_far_as_it_is_known(
    tmp_path: Path, kafka: MemoryKafka
) -> None:
    file = tmp_path / "inputs.yaml"
    file.write_text("clients: {fields: {Name: n}}")
    own = installed(kafka.settings.model_copy(update={"inputs": file}))
    assert (
        problem_of(own, "clients", b"{")
        == "would reject it again: expected one JSON object, found {"
    )
    assert problem_of(own, "clients", b'{"n":"of another form"}') is None


@pytest.mark.parametrize(
    ("given", "value", "found"),
    [
        ({"fields": {"Language": "p.l"}}, {"p": {"l": "de"}}, "de"),
        ({"fields": {"Language": "p.l"}}, {"p": "de"}, None),
        ({}, {"Language": "de"}, "de"),
        ({"envelope": "connect"}, {"payload": {"Language": "de"}}, "de"),
        ({"envelope": "debezium"}, {"after": {"Language": "de"}, "op": "c"}, "de"),
        ({"envelope": "debezium"}, {"payload": {"after": {"Language": "de"}}}, "de"),
        ({"envelope": "debezium"}, {"after": None, "op": "d"}, None),
        ({"fields": {"Language": "key"}}, {"Language": "de"}, None),
    ],
)
def test_a_path_is_looked_for_without_spark_too(
    given: dict[str, Any], value: object, found: str | None
) -> None:
    mapping = InputMapping(**given)
    source = mapping.sources("clients")["Language"]
    assert mapping.found_in(json.dumps(value).encode(), source) == found
    assert mapping.found_in(b"\xff", source) is None
