"""Kafka's records on the page, and what became of each: real topics, real tables."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from shardpost.dead_letters.model.letters import letter_id
from shardpost.kafka import record_pages
from shardpost.kafka.records import Coordinates, partition_of
from shardpost.page import access
from shardpost.settings import Settings
from tests.support.compacting import run
from tests.support.installed import installed
from tests.support.kafka_configs import configure_topic
from tests.support.page_client import PageClient, page_client
from tests.support.reference import Raw, Retry, closed, position, produce, produce_retry
from tests.support.transactions import begun_transaction

BEGIN_MS = 1_790_000_000_000
SECOND_MS = 1_000
LARGE = b'{"Client":"client1","more":"' + b"x" * 900_000 + b'"}'
HOSTILE = b"<script>alert(1)</script>\xe2\x80\xae"
Place = tuple[int, int]


@pytest.fixture(scope="module")
def sent() -> dict[str, Place]:
    """Give the places of the records of `story`, by their names."""
    return {}


@pytest.fixture(scope="module")
def story(shared: Settings, sent: dict[str, Place]) -> Settings:
    """Give a home and topics with a record of each fate."""
    bad = Raw("positions", b"3", b'{"Client":5}', BEGIN_MS + 2)
    named = {
        "first": position("1", "client1", "NASDAQ", timestamp_ms=BEGIN_MS),
        "second": position("1", "client2", "NASDAQ", timestamp_ms=BEGIN_MS + 1),
        "bad": bad,
        "hostile": Raw("positions", HOSTILE, HOSTILE, BEGIN_MS + 3),
        "bytes": Raw("positions", b"\xff\xfe", b"\xff\x00", BEGIN_MS + 4),
        "large": Raw("clients", b"client1", LARGE, BEGIN_MS + 5),
    }
    _send(shared, named, sent)
    run(shared)
    produce_retry(shared, Retry(bad, position("3", "client1", "NASDAQ").value), sent["bad"])
    last = {"closing": closed("1", timestamp_ms=BEGIN_MS + SECOND_MS)}
    _send(shared, last, sent)
    run(shared)
    _send(shared, {"unread": closed("unread", timestamp_ms=BEGIN_MS + 2 * SECOND_MS)}, sent)
    return shared


def _send(settings: Settings, named: dict[str, Raw], sent: dict[str, Place]) -> None:
    places = produce(settings, named.values())
    sent.update({name: places[id(raw)] for name, raw in named.items()})


@pytest.fixture
def page(story: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageClient]:
    with page_client(story, monkeypatch, role="viewer") as client:
        yield client


def _by_place(page: PageClient, topic: str, **asked: object) -> dict[Place, Any]:
    found = page.json("records", topic=topic, **asked)
    return {(one["partition"], one["offset"]): one for one in found["records"]}


def test_records_of_positions_are_told_what_became_of_them(
    page: PageClient, story: Settings, sent: dict[str, Place]
) -> None:
    topic = story.topic("positions")
    found = {place: one["became"] for place, one in _by_place(page, topic).items()}

    def at(name: str) -> str:
        return str(Coordinates(topic, *sent[name]))

    assert found[sent["first"]] == f"read in snapshot 1, superseded by {at('second')}"
    assert found[sent["second"]] == f"read in snapshot 1, superseded by {at('closing')}"
    assert found[sent["closing"]] == (
        "in effect since snapshot 2: the latest record of its key; it closes the position"
    )
    assert found[sent["bad"]].startswith("rejected in snapshot 1: ")
    by = "`shardpost compact`, or the DAG compact_positions"
    assert found[sent["unread"]] == f"not read yet: the next compaction reads it ({by})"
    shown = page.get("records", topic=topic)
    assert "the next compaction reads it (<code>shardpost compact</code>" in shown
    letter = letter_id(Coordinates(topic, *sent["bad"]), BEGIN_MS + 2)
    assert f"letters/letter?id={letter}".replace("@", "%40") in shown
    assert "<script>alert" not in page.response("records", topic=topic).text
    assert {one["form"] for one in _by_place(page, topic).values()} == {
        "JSON",
        "text",
        "bytes",
        "null",
    }


def test_retries_of_inputs_are_told_what_became_of_them(page: PageClient, story: Settings) -> None:
    [retry] = _by_place(page, story.topic("retries")).values()
    assert retry["became"].startswith("in effect since snapshot 2: the latest record of its key")


def test_a_client_of_the_ledger_is_read_by_its_key(page: PageClient, story: Settings) -> None:
    client = installed(story).kafka.producer()
    ledger, partition = story.topic("weekly-emails"), partition_of("client1", 4)
    for key, value in {
        "2026-W47/client1": {"State": "sent", "MessageId": "<1@x>"},
        "2026-W47/client2": {"State": "failed", "MessageId": "<2@x>", "Reason": "550 no"},
        "2026-W47": {"State": "closed"},
    }.items():
        client.produce(ledger, json.dumps(value), key, partition=partition)
    assert client.flush(30) == 0
    assert len(page.json("records", topic=ledger)["records"]) == 3
    [own] = page.json("records", topic=ledger, key="2026-W47/client1")["records"]
    assert own["key"] == "2026-W47/client1"


def test_pages_have_each_record_once_from_an_offset_a_time_or_a_key_on(
    page: PageClient, story: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, count = story.topic("run-requests"), 330
    begin_ms = int(datetime.now(UTC).timestamp() * 1000)  # Kafka deletes older ones after 7 days
    client = installed(story).kafka.producer()
    for number in range(count):
        client.produce(topic, b"%d" % number, b"k%d" % (number % 7), timestamp=begin_ms + number)
    assert client.flush(30) == 0

    def walked(**asked: object) -> list[str]:
        found = page.json("records", topic=topic, **asked)
        values = [one["value"] for one in found["records"]]
        while found["next"]:
            found = page.json("records", topic=topic, **{**asked, "at": found["next"]})
            assert len(found["records"]) <= 100
            values += [one["value"] for one in found["records"]]
        return values

    everything = [str(number) for number in range(count)]
    assert sorted(walked(offset=0), key=int) == everything
    assert walked(offset=0)[:100] == everything[:100]  # by time, over all partitions
    since = datetime.fromtimestamp((begin_ms + 300) / 1000, UTC).isoformat()
    assert sorted(walked(since=since), key=int) == everything[300:]
    assert walked(key="k3") == everything[3::7]
    partition = partition_of("k3", 4)
    own = walked(partition=partition, offset=10)
    assert own == walked(partition=partition, offset=0)[10:]
    newest = page.get("records", topic=topic)
    assert f"The newest 100 records of {topic}, oldest first" in newest
    assert "Earlier" in newest
    assert f">{count - 1}<" in newest
    with_both = page.get("records", 400, topic=topic, offset=1, since=since)
    assert "expected one of them" in with_both
    monkeypatch.setattr(record_pages, "MOST_BYTES", 100)  # which ends a page amid a partition
    assert sorted(walked(since=since), key=int) == everything[300:]
    assert walked(key="k3") == everything[3::7]
    monkeypatch.setattr(record_pages, "MOST_SECONDS", 0)
    late = page.json("records", topic=topic, offset=0)
    assert late["records"] == []
    assert late["next"] == "0:0,1:0,2:0,3:0"
    assert "the time limit was reached" in late["notes"][0]


def test_what_is_not_committed_is_named_and_not_shown(page: PageClient, story: Settings) -> None:
    topic = story.topic("run-commands")
    aborted = begun_transaction(story, f"{topic}/page")
    aborted.produce(topic, b"aborted", b"key", partition=1)
    assert aborted.flush(30) == 0
    aborted.abort_transaction(30)
    writer = begun_transaction(story, f"{topic}/page")
    writer.produce(topic, b"committed", b"key", partition=1)
    writer.commit_transaction(30)
    writer.begin_transaction()
    writer.produce(topic, b"open", b"key", partition=1)
    assert writer.flush(30) == 0
    found = page.json("records", topic=topic)
    assert [one["value"] for one in found["records"]] == ["committed"]
    assert "an open transaction at" in found["notes"][0]
    place: dict[str, Any] = {"topic": topic, "partition": 1}
    assert "its transaction was aborted" in page.get("records/record", offset=0, **place)
    assert "it is a transaction marker" in page.get("records/record", offset=1, **place)
    assert "committed" in page.get("records/record", offset=2, **place)
    assert "a transaction is open from offset 4 on" in page.get("records/record", offset=4, **place)
    writer.abort_transaction(30)


def test_a_record_has_its_own_page_and_its_value_as_a_file(
    page: PageClient, story: Settings, sent: dict[str, Place]
) -> None:
    partition, offset = sent["large"]
    place: dict[str, Any] = {
        "topic": story.topic("clients"),
        "partition": partition,
        "offset": offset,
    }
    record = page.json("records/record", **place)["record"]
    assert (record["cut"], record["size"]) == (True, len(LARGE))
    assert len(page.response("records", topic=place["topic"]).text) < 50_000
    assert page.response("records/value", **place).content == LARGE
    shown = page.get("records/record", **place)
    assert "Download 900.0 kB" in shown
    assert "holders/client?client=client1" in shown
    partition, offset = sent["bytes"]
    place = {"topic": story.topic("positions"), "partition": partition, "offset": offset}
    assert "ff 00" in page.get("records/record", **place)
    partition, offset = sent["closing"]
    closing = page.get("records/record", **{**place, "partition": partition, "offset": offset})
    assert "it closes the position" in closing
    beyond = page.get("records/record", **{**place, "offset": 10**6})
    assert "there is no" in beyond
    assert "is out of range" in page.get("records", **{**place, "offset": 10**6})


def test_what_kafka_has_deleted_is_told_by_history(
    page: PageClient, story: Settings, sent: dict[str, Place]
) -> None:
    topic = story.topic("positions")
    partition, offset = sent["first"]
    # Else it deletes no records; and not by age, since they are of years past.
    configure_topic(story, topic, {"cleanup.policy": "delete", "retention.ms": "-1"})
    before = [TopicPartition(topic, partition, offset + 1)]
    for done in installed(story).kafka.admin().delete_records(before).values():
        done.result(30)
    place: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset}
    found = page.json("records/record", **place)
    assert "Kafka has deleted" in found["notes"][0]
    assert '"Client": "client1"' in found["record"]["value"]
    assert "superseded by" in found["record"]["became"]


def test_only_our_topics_and_only_for_who_may_see_them(
    page: PageClient, story: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "expected one of" in page.get("records", 400, topic="__consumer_offsets")
    too_high = page.get("records", 400, topic=story.topic("positions"), partition=99)
    assert "expected a partition from 0 to 3" in too_high
    monkeypatch.setattr(
        access, "is_allowed", lambda _u, dag, *_: dag in (access.POSITIONS, access.KAFKA)
    )
    text = page.get("records", 403, topic=story.topic("dead-letters"))
    assert "for users who may see the DAG sweep_dead_letters" in text
    text = page.get("records", 403, topic=story.topic("decisions"))
    assert "watch_kafka and the DAG dispatch_run_requests and the DAG compact_positions" in text
    monkeypatch.setattr(access, "is_allowed", lambda *_: True)
    page.get("records", topic=story.topic("decisions"))


def test_a_missing_topic_and_an_unreachable_kafka_are_told(
    settings: Settings, story: Settings, sent: dict[str, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(settings, monkeypatch) as page:
        assert "has no topic" in page.get("records")
    away = story.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    with page_client(away, monkeypatch) as page:
        assert "cannot be reached" in page.get("records")
        partition, offset = sent["second"]
        place: dict[str, Any] = {"partition": partition, "offset": offset}
        kept = page.get("records/record", topic=story.topic("positions"), **place)
        assert "this is the copy in Shardpost's history" in kept
