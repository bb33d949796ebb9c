"""A home that an earlier release left is taken over as it is: tests/data/home_of_0_1_0."""

import base64
import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from shardpost.delta import snapshots
from shardpost.embedded import broker, daemons
from shardpost.kafka import clients
from shardpost.kafka.topic_metadata import topic_ids
from shardpost.maintenance.maintain import maintain_all
from shardpost.settings import Settings
from shardpost.weekly_email import frozen_weeks
from shardpost.weekly_email.model.week import IsoWeek
from tests.conftest import environ
from tests.support.command_line import CommandLine, CommandLineHere
from tests.support.jobs_here import jobs_here
from tests.support.reference import Fold, Raw, closed, position, produce, published

DATA = Path(__file__).parents[1] / "data" / "home_of_0_1_0"
EXPECTED = json.loads((DATA / "expected.json").read_text())
RECORDS = json.loads((DATA / "records.json").read_text())
NEWEST = EXPECTED["snapshots"][-1]
PARTITIONS = 2
INPUTS = ("positions", "clients", "exchanges")


@pytest.fixture
def taken_over(tmp_path: Path, spark: SparkSession) -> Iterator[CommandLine]:
    """Give the command line of a stack without Airflow on that home, its records in its Kafka."""
    del spark
    free = {f"{part}_port": daemons.choose_port() for part in ("kafka", "smtp", "airflow")}
    command = CommandLineHere(environ(home=tmp_path / "home", partitions=PARTITIONS, **free))
    with tarfile.open(DATA / "tables.tar.gz") as packed:
        packed.extractall(command.settings.home, filter="data")
    with jobs_here():
        try:
            broker.start(command.settings)
            put_records_back(command.settings)
            command("up", "--no-airflow")
            know_the_topics(command.settings)
            yield command
        finally:
            command("down")


def put_records_back(settings: Settings) -> None:
    """Create the inputs, and put each record where it was."""
    compacted = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(10**15)}
    made = [NewTopic(n, PARTITIONS, config=compacted) for n in (*INPUTS, "retries")]
    admin = clients.admin(settings)
    for future in admin.create_topics(made).values():
        future.result(30)
    places: list[tuple[str | None, int | None, int | None]] = []
    producer = clients.producer(settings)
    for record in without_holes(RECORDS):
        producer.produce(
            record["topic"],
            key=bytes_of(record["key"]),
            value=bytes_of(record["value"]),
            partition=record["partition"],
            timestamp=record["timestamp"],
            headers=[(name, bytes_of(value)) for name, value in record["headers"]],
            on_delivery=lambda _, message: places.append(
                (message.topic(), message.partition(), message.offset())
            ),
        )
        producer.poll(0)
    assert producer.flush(30) == 0
    were = [(record["topic"], record["partition"], record["offset"]) for record in RECORDS]
    assert set(were) <= set(places)


def without_holes(records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the records; where a transaction's marker was, one more that nobody will read again."""
    ends: Counter[tuple[str, int]] = Counter()
    for record in records:
        partition = record["topic"], record["partition"]
        for _ in range(ends[partition], record["offset"]):
            yield record
        yield record
        ends[partition] = record["offset"] + 1


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def know_the_topics(settings: Settings) -> None:
    """Let the newest snapshot name the topics of this Kafka, which were looked at just now."""
    newest = snapshots.current(settings)
    ids = topic_ids(settings, [*newest.end_offsets])
    here = replace(newest, topic_ids=ids, looked_at=datetime.now(UTC))
    snapshots.update_looked_at(settings, here)


def folded(more: list[Raw]) -> Fold:
    """Return the fold of the newest snapshot's open positions, and of more records."""
    fold = Fold()
    fold.add(
        Raw(record["topic"], bytes_of(record["key"]), bytes_of(record["value"]))
        for record in RECORDS
        if record["topic"] == "exchanges"
    )
    for client, ids in EXPECTED["holders"][str(NEWEST["snapshot"])].items():
        fold.add(position(key, client, "NASDAQ") for key in ids)
    fold.add(more)
    return fold


def readable(taken_over: CommandLine) -> dict[str, Any]:
    """Return what today's commands print of that home, in the form of `expected.json`."""
    return {
        "holders": holders_at_snapshots(taken_over),
        "as_of": {at: taken_over.json("holders", "--as-of", at) for at in EXPECTED["as_of"]},
        "explain": {who: taken_over.json("explain", who) for who in EXPECTED["explain"]},
    }


def holders_at_snapshots(taken_over: CommandLine) -> dict[str, Any]:
    numbers = EXPECTED["holders"]
    return {number: taken_over.json("holders", "--snapshot", number) for number in numbers}


def refuses_its_week_without_the_ledger_it_had(taken_over: CommandLine) -> None:
    week = IsoWeek.parse(EXPECTED["emails"]["week"])
    frozen = frozen_weeks.find(taken_over.settings, week)
    assert frozen is not None
    assert frozen.recipients == 7
    why = taken_over.refused("email", "--week", str(week), code=1)
    assert "ledger" in why
    assert not list((taken_over.settings.home / "mail").glob("*.eml"))


NOW = datetime(2026, 11, 23, 11, tzinfo=UTC)


def test_it_is_read_and_continued_without_loss_and_nobody_is_mailed_again(
    taken_over: CommandLine,
) -> None:
    expected = {name: EXPECTED[name] for name in ("holders", "as_of", "explain")}
    assert readable(taken_over) == expected
    refuses_its_week_without_the_ledger_it_had(taken_over)
    # Nothing is new to it; only its holders are new to this Kafka.
    done = taken_over.json("compact")
    assert (done["changed"], done["snapshot"]["snapshot"]) == (False, NEWEST["snapshot"])
    assert published(taken_over.settings) == expected["holders"][str(NEWEST["snapshot"])]

    new = [closed("p24"), closed("p29"), position("p7", "client1", "NASDAQ")]
    new.append(position("new", "client1", "NASDAQ"))
    produce(taken_over.settings, new)
    assert taken_over.json("compact")["snapshot"]["snapshot"] == NEWEST["snapshot"] + 1
    holders = folded(new).holders()
    assert taken_over.json("holders") == holders
    assert published(taken_over.settings) == holders
    assert holders_at_snapshots(taken_over) == expected["holders"]
    again = taken_over.json("explain", "client8")
    assert again == expected["explain"]["client8"]


def test_its_maintenance_and_pruning_keep_all_answers(taken_over: CommandLine) -> None:
    taken_over("tables", "maintain")
    expected = {name: EXPECTED[name] for name in ("holders", "as_of", "explain")}
    assert readable(taken_over) == expected
    done = maintain_all(taken_over.settings.model_copy(update={"history_days": 57}), NOW)
    assert done.errors == []
    assert done.as_json()["records"]["rows"]["position_events"] > 0
    pruned = snapshots.current(taken_over.settings)
    assert pruned.history_from == NOW - timedelta(days=57)
    assert holders_at_snapshots(taken_over) == expected["holders"]
    assert taken_over.json("holders") == expected["holders"][str(NEWEST["snapshot"])]
    for at, found in expected["as_of"].items():
        if datetime.fromisoformat(at) < pruned.history_from:
            assert "SHARDPOST_HISTORY_DAYS" in taken_over.refused("holders", "--as-of", at, code=1)
        else:
            assert taken_over.json("holders", "--as-of", at) == found
    assert datetime.fromisoformat(max(expected["as_of"])) > pruned.history_from
