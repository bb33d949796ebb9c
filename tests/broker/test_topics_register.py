"""`topics register` with a real registry: the schemas that come back are true of records."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError
from jsonschema import Draft202012Validator

from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.holders.publishing import publish
from shardpost.kafka.record_pages import newest_records
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.values.topic_names import TopicName
from tests.support.command_line import CommandLineHere
from tests.support.histories import overwrite, snapshot
from tests.support.installed import installed
from tests.support.schema_registry import Registry, schema_registry

OWN: list[TopicName] = [
    "share-holders",
    "weekly-emails",
    "decisions",
    "run-requests",
    "run-commands",
]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with schema_registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


@pytest.fixture
def ready(settings: Settings) -> Settings:
    own = settings.model_copy(update={"partitions": 1})
    apply_topics(installed(own))
    return own


def subjects(settings: Settings) -> list[str]:
    return [f"{settings.topic(name)}-value" for name in OWN]


def test_what_is_published_is_as_the_registered_schema_says(
    ready: Settings, shardpost: CommandLineHere, registry: Registry
) -> None:
    ids = shardpost.json("topics", "register", "--registry", registry.url)
    assert list(ids) == subjects(ready)
    row = {"client": "ann", "positions": ["1", "3"], "snapshot": 1, "shard": 0}
    view = snapshot(1, {SHARE_HOLDERS.name: overwrite(ready, SHARE_HOLDERS, [row])})
    assert publish(installed(ready), view).records == 1
    topic = ready.topic("share-holders")
    [record] = newest_records(installed(ready).kafka, topic, 10)
    found = registry.client.get_latest_version(f"{topic}-value")
    assert (found.schema_id, found.schema.schema_type) == (ids[f"{topic}-value"], "JSON")
    of_values = Draft202012Validator(json.loads(found.schema.schema_str or ""))
    assert [*of_values.iter_errors(json.loads(record.value or b""))] == []
    assert [*of_values.iter_errors({"Client": "ann", "Positions": [1, 3]})]


def test_what_is_registered_again_is_no_other_version(
    ready: Settings, shardpost: CommandLineHere, registry: Registry
) -> None:
    first = shardpost.json("topics", "register", "--registry", registry.url)
    assert shardpost.json("topics", "register", "--registry", registry.url) == first
    for subject in subjects(ready):
        assert registry.client.get_versions(subject) == [1]
    every = {f"{ready.topic(name)}-value" for name in get_args(TopicName)}
    for subject in every - {*subjects(ready)}:
        with pytest.raises(SchemaRegistryError, match=r"No artifact|40401"):
            registry.client.get_versions(subject)


def test_the_registry_is_the_one_that_the_inputs_have(
    ready: Settings, registry: Registry, tmp_path: Path
) -> None:
    def shardpost(*entries: str) -> CommandLineHere:
        (file := tmp_path / "inputs.yml").write_text("\n".join(entries))
        return CommandLineHere(ready.model_copy(update={"inputs": file}).environ())

    mine = f"{{format: avro, registry: {{url: '{registry.url}', user: me}}}}"
    other = "{format: avro, registry: {url: 'http://other.test'}}"
    one = shardpost(f"positions: {mine}", f"clients: {mine}")
    assert list(one.json("topics", "register")) == subjects(ready)
    both = shardpost(f"positions: {mine}", f"clients: {other}")
    line = both.refused("topics", "register", code=2)
    assert f"found {registry.url}, http://other.test: add --registry URL" in line
    assert list(both.json("topics", "register", "--registry", registry.url)) == subjects(ready)
    none = shardpost("positions: {key: key}")
    assert "expected one registry, found none" in none.refused("topics", "register", code=2)


def test_a_registry_whose_rule_refuses_a_schema_is_not_taken_for_a_broken_one(
    ready: Settings, registry: Registry
) -> None:
    subject = subjects(ready)[0]
    numbers = {"type": "object", "properties": {"Client": {"type": "integer"}}}
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    registry.register(subject, json.dumps(draft | numbers), "JSON")
    registry.client.set_compatibility(subject, "BACKWARD")
    bounded = CommandLineHere(ready.model_copy(update={"kafka_timeout": 5.0}).environ())
    said = bounded.refused("topics", "register", "--registry", registry.url, code=1)
    assert f"at subjects/{subject}/versions: " in said
    # Confluent's registry answers 409, Apicurio 500 without a word of why.
    assert "its log says why it takes no such schema" in said or "compatibility" in said
    assert registry.client.get_versions(subject) == [1]
