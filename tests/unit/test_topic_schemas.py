"""The JSON Schemas in docs/schemas are true of what is written to each topic, and of no more."""

from datetime import UTC, datetime
from typing import get_args

import pytest
from jsonschema import Draft202012Validator

from shardpost.checkout import SCHEMAS
from shardpost.decisions import Decision, Kind
from shardpost.holders.publishing import publish
from shardpost.kafka.records import Outgoing
from shardpost.run_requests.model.commands import Command, CommandState
from shardpost.run_requests.request_topics import release_record
from shardpost.topics.creation import apply_topics
from shardpost.topics.declared import OWN_VALUES
from shardpost.values.topic_names import INPUTS, TopicName
from shardpost.weekly_email.model.ledger import (
    DeliveryState,
    LedgerEntry,
    Written,
    closed_key,
    closed_value,
)
from tests.support.committed_snapshot import SHARDS, held, limit, records
from tests.support.installed import installed
from tests.support.letter_world import (
    START,
    at,
    committed,
    decide,
    failed,
    milliseconds,
    original,
    produce,
    retries,
    sweep,
)
from tests.support.memory_kafka import MemoryKafka, memory_kafka
from tests.support.topic_schemas import BYTE_FOR_BYTE, problems, require_valid, schema

KAFKA = {"partitions": SHARDS, "retry_jitter": 0.0, "retry_attempts": 2}
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_each_topic_has_a_schema() -> None:
    assert {path.stem for path in SCHEMAS.glob("*.json")} == {*get_args(TopicName)}
    for topic in get_args(TopicName):
        Draft202012Validator.check_schema(schema(topic))
        assert schema(topic)["title"] == topic
    of_others = {*INPUTS, *BYTE_FOR_BYTE}
    assert {spec.name for spec in OWN_VALUES} == {*get_args(TopicName)} - of_others


def test_holders_are_published_by_their_schema(kafka: MemoryKafka) -> None:
    limit(kafka, 2_000)
    many = [str(n) for n in range(1000)]
    view = held(kafka, 1, {"many": many, "few": ["1", "3"], "none": []})
    publish(installed(kafka.settings), view)
    assert require_valid("share-holders", records(kafka)) == 3


def test_the_ledger_is_written_by_its_schema() -> None:
    written = Written(3, NOW, 4, NOW, "0f")
    entries = [LedgerEntry("ann", state, "<id>", "why", written=written) for state in DeliveryState]
    entries += [LedgerEntry("ann", DeliveryState.SENT, resends=2), LedgerEntry("ann", None)]
    found = [Outgoing("", one.id.key("2026-W47"), one.value(), []) for one in entries]
    closing = Outgoing("", closed_key("2026-W47"), closed_value({}, NOW), [])
    assert require_valid("weekly-emails", [*found, closing]) == 8


def test_requests_commands_and_decisions_are_written_by_their_schemas(kafka: MemoryKafka) -> None:
    states = (CommandState.ISSUED, CommandState.STARTED)
    made = [Command("k", state, "weekly_email", {"week": "W"}, "Ann", 3, "r") for state in states]
    commands = [Outgoing("", b"k", one.value(), []) for one in made]
    commands.append(release_record(installed(kafka.settings).kafka, 0, "k", "its run ended"))
    assert require_valid("run-commands", commands) == 3
    assert require_valid("run-requests", [Outgoing("", b"k", made[0].request(), [])]) == 1
    decisions = [Decision(b"k", kind, "Ann", NOW, "why").value() for kind in Kind]
    assert require_valid("decisions", [Outgoing("", b"k", one, []) for one in decisions])


def test_letters_are_written_by_their_schemas_wherever_they_go() -> None:
    now = [START]
    with memory_kafka(lambda: milliseconds(now[0]), **KAFKA) as kafka:
        settings = kafka.settings
        apply_topics(installed(settings))
        produce(settings, failed(settings, original(1)), failed(settings, original(2, None, None)))
        produce(settings, Outgoing("dead-letters", b"k", b"no letter", []))
        failed_again = set()
        for hours in (1, 10, 50):
            now[0] = at(hours * 3_600)
            sweep(settings, now[0])
            tried = [one for one in retries(settings) if one.coordinates not in failed_again]
            produce(settings, *(failed(settings, one, when=now[0]) for one in tried))
            failed_again |= {one.coordinates for one in tried}
        assert decide(settings, is_redrive=False) == 3
        found = {one: [*committed(settings, one)] for one in BYTE_FOR_BYTE}
    letters = [one for one in found["dead-letters"] if one.headers]  # a stranger has written one
    assert require_valid("dead-letters", letters) == len(found["dead-letters"]) - 1
    assert require_valid("retries", found["retries"]) >= 2
    assert require_valid("parking-lot", found["parking-lot"]) == 6
    assert {one.value is None for one in letters} == {True, False}


@pytest.mark.parametrize(
    ("topic", "value", "headers"),
    [
        ("share-holders", b'{"Client":"a","Positions":[]}', 1),
        ("share-holders", b'{"Client":"a","Positions":null}', 1),
        ("share-holders", b'{"Client":"a","Positions":["1"]}', 0),
        ("run-commands", b'{"State":"issued"}', 0),
        ("positions", b'{"PositionId":1}', 0),
        ("decisions", b'{"Kind":"guessed","Who":"a","When":"","Why":""}', 0),
        ("retries", b"", 0),
    ],
)
def test_what_is_no_record_of_a_topic_is_wrong(topic: str, value: bytes, headers: int) -> None:
    given = [("snapshot", "1"), ("change", "upsert"), ("count", "1")] if headers else []
    assert problems(topic, Outgoing(topic, b"a", value, [*given]))
