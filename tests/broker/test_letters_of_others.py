"""What anybody may write to the topics of letters: it stops no sweep, and is reported right."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from shardpost.dead_letters import redrive
from shardpost.dead_letters.foreign_intake import take_in
from shardpost.dead_letters.letter_details import text_or_base64
from shardpost.dead_letters.letter_topics import routes_of
from shardpost.dead_letters.model.letter_format import Letter, Malformed, header_text, parse_record
from shardpost.dead_letters.model.letters import letter_id
from shardpost.dead_letters.model.transition_records import parked_record
from shardpost.kafka import offsets, reading, topic_metadata
from shardpost.kafka.reading import read_selected
from shardpost.kafka.records import Outgoing, Record, TopicPartition
from shardpost.kafka.transactions import TooLargeError, Transactions, anyone, produce
from shardpost.letters import is_exhausted, make_letter, read_letter
from shardpost.settings import Settings
from tests.support.command_line import SHARDPOST, CommandLine
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.kafka_configs import configure_topic
from tests.support.letter_world import (
    START,
    at,
    committed,
    decide,
    failed,
    header,
    live,
    original,
    put,
    ready_for_letters,
    retries,
    seen,
    states,
    sweep,
    total,
)
from tests.support.raw_headers import produce_raw

LARGE = 900_000


@pytest.fixture
def ready(settings: Settings) -> Settings:
    return ready_for_letters(settings, partitions=1, lock_wait=1.0)


def length(settings: Settings, topic: str) -> int:
    counts = topic_metadata.partition_counts(installed(settings).kafka, [topic])
    [marks] = offsets.watermarks(installed(settings).kafka, counts, committed=False).values()
    return sum(high for _, high in marks.values())


def in_store(settings: Settings, key: bytes, value: bytes | None, **more: object) -> Outgoing:
    headers = more.get("headers", [])
    assert isinstance(headers, list)
    return Outgoing(settings.topic("dead-letters"), key, value, headers, 0)


def limit(settings: Settings, topic: str, size: int) -> None:
    configure_topic(settings, topic, {"max.message.bytes": str(size)})


def test_a_header_whose_name_is_no_text_stops_nothing(
    ready: Settings, shardpost: CommandLine
) -> None:
    produce_raw(
        ready, ready.topic("dead-letters"), b"odd", b"v", [(b"letter-id", b"odd"), (b"\xff", b"")]
    )
    put(ready, [failed(ready, original(1))])
    assert total(sweep(ready, at(60))) == {"parked": 1, "retried": 1}
    for _ in range(30):  # an interpreter that has grown used to a call makes it in another way
        assert len(list(committed(ready, ready.topic("dead-letters")))) == 4
    [letter] = live(ready, ready.topic("parking-lot")).values()
    odd = (letter.key or b"").decode()
    assert (header(letter, "stored-key"), letter.value) == ("odd", b"v")
    assert header(letter, "headers-left-out") == "all: the name of one is not UTF-8"
    assert states(ready) == {odd: "parked", "positions-0-1": "retried"}
    assert shardpost.json("letters", "show", odd)["value"] == "v"
    assert shardpost.json("letters", "discard", "--apply", "--why", "x")["done"] == 1


def test_a_consumer_makes_a_letter_of_a_record_with_such_a_header(ready: Settings) -> None:
    produce_raw(ready, ready.topic("clients"), b"k", b"v", [(b"\xff", b"1")])
    [message] = reading.read_to_end(
        installed(ready).kafka, TopicPartition(ready.topic("clients"), 0)
    )
    topic = ready.topic("dead-letters")
    for _ in range(30):  # an interpreter that has grown used to a call makes it in another way
        letter = make_letter(message, "E: x", failed_at=START, partitions=1, topic=topic)
        assert not is_exhausted(message, 1)
        assert read_letter(message) == Malformed("expected a header letter-id, found none")
    put(ready, [Outgoing(**letter)])
    [stored] = live(ready, ready.topic("dead-letters")).values()
    name = f"{ready.topic('clients')}-0-0@{message.timestamp()[1]}"
    assert (stored.value, header(stored, "letter-id")) == (b"v", name)
    assert header(stored, "headers-left-out") == "all: the name of one is not UTF-8"


def places(settings: Settings) -> list[str]:
    """Return the names of malformed letters: where each record of the store is, in order."""
    found = committed(settings, settings.topic("dead-letters"))
    return [letter_id(one.coordinates, one.timestamp) for one in found if one.value is not None]


@pytest.mark.parametrize(
    "key",
    [b"\xff\xfe", b"a\nb\x1b[31m/c", b"k" * 5000, b"", "Schl\u00fcssel/../ 1".encode()],
)
def test_letters_under_any_key_are_listed_from_their_first_step_to_their_last(
    ready: Settings, shardpost: CommandLine, key: bytes
) -> None:
    put(ready, [in_store(ready, key, b"v1"), in_store(ready, key, b"v2")])
    name, other = places(ready)
    assert states(ready) == {name: "waiting", other: "waiting"}
    assert shardpost.json("letters", "show", name)["value"] == "v1"
    assert total(sweep(ready, START)) == {"parked": 2}
    assert states(ready) == {name: "parked", other: "parked"}
    assert live(ready, ready.topic("dead-letters")) == {}
    shown = shardpost.json("letters", "show", name)
    assert (shown["letter_id"], shown["value"], shown["state"]) == (name, "v1", "parked")
    assert ["stored-key", text_or_base64(key)] in shown["headers"]
    [refused] = shardpost.json("letters", "redrive", "--id", name, code=3)["refusals"]
    assert refused["letter_id"] == name
    assert "it can only be discarded" in refused["reason"]
    done = shardpost.json("letters", "discard", "--id", name, "--apply", "--why", "junk")
    assert (done["done"], done["refused"]) == (1, 0)
    assert states(ready) == {name: "discarded", other: "parked"}
    shown = shardpost.json("letters", "show", name)
    assert [one["why"] for one in shown["decisions"]] == ["junk"]


def test_what_is_too_large_to_be_retried_is_parked_and_the_others_go_on(ready: Settings) -> None:
    error = ("error", b"\xff" * LARGE)
    wide = failed(ready, original(3))
    put(ready, [failed(ready, original(1, b"k" * LARGE, b"v" * LARGE)), failed(ready, original(2))])
    put(ready, [wide._replace(headers=[*wide.headers, error])])
    assert total(sweep(ready, at(60))) == {"parked": 1, "retried": 2}
    assert sorted(seen(ready)) == [("positions-0-2", "1"), ("positions-0-3", "1")]
    [letter] = live(ready, ready.topic("parking-lot")).values()
    assert (letter.key, letter.value) == (b"positions-0-1", b"v" * LARGE)
    reason = "too large for its retry topic together with its original key"
    assert header(letter, "parked-reason") == reason
    assert total(sweep(ready, at(90))) == {}


def test_a_retry_topic_that_takes_only_small_records_stops_nothing(
    ready: Settings, shardpost: CommandLine
) -> None:
    limit(ready, ready.topic("retries"), 2_000)
    put(ready, [failed(ready, original(n, b"k", b"v" * (5_000 * (n % 2)))) for n in range(4)])
    assert total(sweep(ready, at(60))) == {"parked": 2, "retried": 2}
    assert sorted(seen(ready)) == [("positions-0-0", "1"), ("positions-0-2", "1")]
    done = shardpost.json("letters", "redrive", "--apply", "--why", "x", code=3)
    assert (done["done"], done["refused"]) == (0, 2)
    assert done["refusals"][0]["reason"] == "too large for its retry topic"
    limit(ready, ready.topic("retries"), 20_000)
    assert shardpost.json("letters", "redrive", "--apply", "--why", "x")["done"] == 2
    assert set(seen(ready).values()) == {1}
    assert len(seen(ready)) == 4


def test_what_is_too_large_ends_its_transaction_long_before_that_times_out(
    ready: Settings,
) -> None:
    patient = ready.model_copy(update={"kafka_timeout": 800.0})  # half of it: past the test's own
    topic = patient.topic("retries")
    limit(patient, topic, 1_000_000)
    config = {"message.max.bytes": 6_000_000}
    small = [Outgoing(topic, b"k", b"v", [], 0)] * 20
    large = Outgoing(topic, b"k", b"v" * 2_000_000, [], 0)
    with closing(
        Transactions(
            installed(patient).kafka,
            topic,
            may_write=anyone,
            fenced="",
            failed="{reason}",
            **config,
        )
    ) as to:
        to.open()
        for _ in range(3):
            with pytest.raises(TooLargeError):
                to.write([*small, large, *small])
        to.write(small)
    assert len(list(committed(patient, topic))) == len(small)


def taking_in(ready: Settings) -> tuple[Settings, str]:
    """Return settings that take in the letters of a new topic, and that topic."""
    foreign = f"{ready.topic('clients')}-dlq"
    admin = installed(ready).kafka.admin()
    admin.create_topics([NewTopic(foreign, 1, 1)])[foreign].result(30)
    return ready.model_copy(update={"foreign_dead_letters": foreign}), foreign


def test_the_intake_takes_what_is_before_an_open_transaction_and_keeps_its_place_fresh(
    ready: Settings,
) -> None:
    taking, foreign = taking_in(ready)
    others = Producer(installed(ready).kafka.config(**{"transactional.id": foreign}))
    others.init_transactions(30)
    for value in (b"before", b"within"):
        others.begin_transaction()
        others.produce(foreign, key=b"k", value=value)
        assert others.flush(30) == 0
        if value == b"before":
            others.commit_transaction(30)
    assert take_in(installed(taking), routes_of(installed(taking)), START).taken_in == 1
    commits = length(ready, "__consumer_offsets")
    assert take_in(installed(taking), routes_of(installed(taking)), START).taken_in == 0
    assert length(ready, "__consumer_offsets") > commits
    others.commit_transaction(30)
    assert take_in(installed(taking), routes_of(installed(taking)), START).taken_in == 1
    assert take_in(installed(taking), routes_of(installed(taking)), START).taken_in == 0
    values = [letter.value for letter in committed(ready, ready.topic("dead-letters"))]
    assert values == [b"before", b"within"]


def test_an_error_with_a_nul_arrives_whole_and_a_topic_with_one_names_no_other(
    ready: Settings,
) -> None:
    taking, foreign = taking_in(ready)
    for topic in (b"orders", b"ord\0ers"):
        place = (topic, bytes(4), bytes(8), b"a\0b")
        names = ("original-topic", "original-partition", "original-offset", "exception-message")
        headers = [(f"kafka_{name}", value) for name, value in zip(names, place, strict=True)]
        produce(installed(ready).kafka, Outgoing(foreign, b"k", b"v", [*headers]))
    assert take_in(installed(taking), routes_of(installed(taking)), START).taken_in == 2
    whole, malformed = (
        dict(letter.headers) for letter in committed(ready, ready.topic("dead-letters"))
    )
    assert whole["error"] == b": a\0b"
    assert "origin-topic" not in malformed
    said = header_text(malformed["error"])
    assert "found original-topic b'ord\\x00ers', " in said


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_letter_that_is_parked_again_while_it_is_redriven_stays(
    ready: Settings, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    once = ready.model_copy(update={"retry_attempts": 0})
    put(once, [failed(once, original(1)), failed(once, original(2, b"other"))])
    assert total(sweep(once, START)) == {"parked": 2}
    again = failed(once, original(1, value=b"new"), "KeyError: new", at(9))
    stored = Record(again.key, again.value, again.headers, again.timestamp, "", 0, 9)
    letter = parse_record(stored)
    assert isinstance(letter, Letter)
    record = parked_record(letter, stored, "exhausted", routes_of(installed(once)))
    sweeping = installed(once).kafka.transactional_producer(f"{once.topic('dead-letters')}/other")
    sweeping.init_transactions(10)
    as_it_is = read_selected

    def meanwhile(*asked: Any) -> Iterator[tuple[Record, Any]]:
        found = list(as_it_is(*asked))
        sweeping.begin_transaction()
        sweeping.produce(**(record.arguments() | {"timestamp": 0}))
        assert sweeping.flush(10) == 0
        if is_committed:
            sweeping.commit_transaction(10)
        yield from found

    monkeypatch.setattr(redrive, "read_selected", meanwhile)
    assert decide(once, value=None) == 1
    if not is_committed:
        sweeping.commit_transaction(10)
    monkeypatch.undo()
    assert seen(once) == {("positions-0-2", "1"): 1}
    [left] = live(once, once.topic("parking-lot")).values()
    assert (left.key, left.value) == (b"positions-0-1", b"new")
    assert decide(once) == 1
    assert seen(once) == {("positions-0-1", "1"): 1, ("positions-0-2", "1"): 1}
    assert live(once, once.topic("parking-lot")) == {}


def test_nothing_of_others_steers_the_terminal(ready: Settings, shardpost: CommandLine) -> None:
    bad = "\x1b[31m\x9b1m\x07\u202ered"
    key, value = f"k{bad}".encode(), f"v{bad}\nnext\tline".encode()
    letter = failed(ready, original(1, key, value), f"E: {bad}")
    forged = [*letter.headers, ("origin-topic", f"t{bad}"), (f"h{bad}", bad)]
    put(ready, [letter._replace(headers=forged), in_store(ready, key, value, headers=forged)])
    patient = ready.model_copy(update={"retry_attempts": 0})
    assert total(sweep(patient, START)) == {"parked": 2}
    ids = {one["letter_id"] for one in shardpost.json("letters", "list")}
    [odd] = ids - {"positions-0-1"}
    printed = [
        shardpost("letters", "list"),
        shardpost("letters", "show", "positions-0-1"),
        shardpost("letters", "show", odd),
        shardpost("letters", "redrive", code=3),
        shardpost.refused("letters", "show", f"x{bad}", code=1),
    ]
    for text in printed:
        assert not set(text) & set("\x1b\x9b\x07\u202e"), text
    assert "\ufffd[31m\ufffd1m\ufffd\ufffdred\nnext\tline" in printed[1]


def test_interrupted_midway_it_says_how_many_and_the_next_one_sends_the_rest(
    ready: Settings, shardpost: CommandLine, tmp_path: Path
) -> None:
    once = ready.model_copy(update={"retry_attempts": 0})
    put(once, [failed(once, original(n, b"k%d" % n)) for n in range(20)])
    assert total(sweep(once, START)) == {"parked": 20}
    arguments = ("letters", "redrive", "--apply", "--why", "x")
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(
            [str(SHARDPOST), *arguments, "--rate", "2"],
            env=os.environ | ready.environ(),
            stderr=log,
        )
        wait_for(lambda: len(retries(once)) >= 4, "four retries", seconds=60)
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 1
    words = (tmp_path / "log").read_text()
    assert "shardpost: interrupted: " in words
    assert "Traceback" not in words
    moved = int(words.split("interrupted: ")[1].split()[0])
    assert moved <= len(retries(once)) <= moved + 2
    before = len(retries(once))
    rest = shardpost.json(*arguments)
    assert rest["done"] == 20 - before
    assert set(seen(once).values()) == {1}
    assert len(seen(once)) == 20
