"""A frozen week of which nothing is left is answered without Spark, as its run would end."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shardpost.errors import ShardpostError, UsageError
from shardpost.kafka.transactions import Transactions
from shardpost.locks import LockedError
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email import ledger_guard
from shardpost.weekly_email.email_job import parser, request_of
from shardpost.weekly_email.ledger_guard import locked_shards
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.run_results import Result, result_without_spark
from tests.support.memory_kafka import MemoryKafka, memory_kafka
from tests.support.written_weeks import begin, freeze, look, record

WEEK = IsoWeek(2026, 47)
NOW = WEEK.end + timedelta(hours=8)
FINAL = (DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.SUPPRESSED)
CLIENTS = ("c0", "c4", "c1", "c2")  # two in shard 0, two in shard 1


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[MemoryKafka]:
    with memory_kafka(home=tmp_path, partitions=2, kafka_timeout=1) as kafka:
        apply_topics(kafka.settings)
        look(kafka.settings, NOW)
        yield kafka


@pytest.fixture
def at(kafka: MemoryKafka) -> Settings:
    return kafka.settings


def mailed(settings: Settings, **states: DeliveryState) -> None:
    """Freeze the week, and have a run leave its clients in these states; others got their mail."""
    begin(settings, WEEK, NOW)
    freeze(settings, WEEK, CLIENTS, NOW)
    for client in CLIENTS:
        record(settings, WEEK, client, states.get(client, DeliveryState.SENT), "why")


def ask(settings: Settings, *arguments: str, now: datetime = NOW) -> Result | None:
    given = ["--week", str(WEEK), "--now", now.isoformat(), *arguments]
    return result_without_spark(request_of(parser().parse_args(given)), settings)


def answer(settings: Settings, *arguments: str) -> tuple[int, dict[str, Any]]:
    found = ask(settings, *arguments)
    assert found is not None
    return found


def test_a_week_in_which_everybody_is_final_ends_as_its_run_would(at: Settings) -> None:
    mailed(at, c0=DeliveryState.FAILED, c4=DeliveryState.SUPPRESSED)
    code, document = answer(at)
    assert (code, document["week"], document["snapshot"]) == (0, str(WEEK), 1)
    assert document["unknown"] == []
    none = {"failed": 0, "unknown": 0, "suppressed": 0, "open": 0}
    assert document["shards"] == [
        {"shard": 0, "sent": 0, **none, "failed": 1, "suppressed": 1},
        {"shard": 1, "sent": 2, **none},
    ]
    assert document["causes"]["failed"] == [{"reason": "why", "count": 1, "clients": ["c0"]}]


def test_an_audience_without_clients_is_finished(at: Settings) -> None:
    freeze(at, WEEK, [], NOW)
    assert answer(at)[0] == 0


def test_what_is_left_to_do_needs_spark(at: Settings) -> None:
    assert ask(at) is None  # not frozen
    mailed(at, c1=DeliveryState.FAILED, c2=DeliveryState.SUPPRESSED)
    assert ask(at, "--dry-run") is None
    assert ask(at, "--again", "FAILED") is None
    assert ask(at, "--again", "SUPPRESSED") is None
    assert answer(at, "--shards", "0", "--again", "FAILED")[1]["shards"][0]["sent"] == 2
    record(at, WEEK, "c0", None)
    assert ask(at) is None
    assert ask(at, "--shards", "1") is not None


def test_a_client_the_ledger_does_not_know_needs_spark(at: Settings) -> None:
    begin(at, WEEK, NOW)
    freeze(at, WEEK, CLIENTS, NOW)
    for client in CLIENTS[:-1]:
        record(at, WEEK, client, DeliveryState.SENT)
    assert ask(at) is None


def test_unknown_deliveries_end_with_3_and_can_be_resent_only_by_a_run(at: Settings) -> None:
    mailed(at, c1=DeliveryState.UNKNOWN)
    code, document = answer(at)
    assert (code, document["unknown"]) == (3, ["c1"])
    assert ask(at, "--on-unknown", "resend") is None


def test_a_mail_that_was_being_sent_needs_a_run_which_makes_it_unknown(at: Settings) -> None:
    mailed(at, c1=DeliveryState.SENDING)
    assert ask(at) is None


def test_too_many_failed_clients_end_with_3_and_are_named(
    at: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    mailed(at, **dict.fromkeys(CLIENTS, DeliveryState.FAILED))
    assert answer(at)[0] == 3
    said = capsys.readouterr().err
    assert f"shardpost: {WEEK}: 4 of 4 clients failed, and none was mailed" in said
    assert '4 with "why"' in said


def test_everything_that_a_run_checks_is_checked(kafka: MemoryKafka) -> None:
    mailed(kafka.settings)
    with pytest.raises(UsageError, match="shards '0-9'"):
        ask(kafka.settings, "--shards", "0-9")
    with pytest.raises(UsageError, match="SHARDPOST_MAIL_FROM"):
        ask(kafka.settings.model_copy(update={"mail_from": "nobody"}))
    late = NOW + timedelta(seconds=kafka.settings.mail_snapshot_age + 1)
    with pytest.raises(ShardpostError, match="who has unsubscribed since"):
        ask(kafka.settings, now=late)
    with pytest.raises(ShardpostError, match="--early is for a week that goes on"):
        ask(kafka.settings, "--early")
    kafka.broker.delete_topic("weekly-emails")
    apply_topics(kafka.settings)
    with pytest.raises(ShardpostError, match="deleted and created again"):
        ask(kafka.settings)


def test_beside_another_run_it_is_refused(at: Settings) -> None:
    mailed(at)
    with locked_shards(at, WEEK, [1]), pytest.raises(LockedError):
        ask(at)
    with locked_shards(at, WEEK, [1]):
        assert ask(at, "--shards", "0") is not None


def test_an_open_transaction_in_the_shard_needs_a_run_that_fences_it(at: Settings) -> None:
    mailed(at)
    open_one = Transactions(at, "somebody", fenced="", failed="")
    open_one.open()
    producer = open_one._producer
    assert producer is not None
    producer.begin_transaction()
    producer.produce(at.topic("weekly-emails"), key=b"x", value=b"", partition=1)
    producer.flush(1)
    assert ask(at) is None
    assert ask(at, "--shards", "0") is not None
    producer.abort_transaction()
    assert ask(at) is not None


def test_the_end_of_the_ledger_is_marked_as_after_a_run(at: Settings) -> None:
    mailed(at)
    answer(at)
    marks = ledger_guard.list_marks(at)
    assert [mark.week for mark in marks] == [str(WEEK)] * 2
    assert marks[-1].ends > marks[0].ends


def test_a_freeze_that_is_done_and_a_skipped_week_need_no_spark(at: Settings) -> None:
    assert ask(at, "--freeze-only") is None
    assert answer(at, "--freeze-only", "--dry-run")[1]["recipients"] is None
    late = NOW + timedelta(days=30)
    skipped = ask(at, "--freeze-only", "--scheduled-at", late.isoformat(), now=late)
    assert skipped is not None
    assert "3 days" in skipped[1]["skipped"]
    freeze(at, WEEK, CLIENTS, NOW)
    code, document = answer(at, "--freeze-only")
    assert (code, document["recipients"], document["groups"]) == (0, 4, ["0-1"])
