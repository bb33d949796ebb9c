"""The ledger of a shard on Kafka in memory: a newer run takes over, and the older one stops."""

from collections.abc import Iterator

import pytest

from shardpost.kafka.transactions import FencedError
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.ledger_topic import Ledger, ShardLedger
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.memory_kafka import memory_kafka

WEEK = IsoWeek(2026, 47)


@pytest.fixture
def ready() -> Iterator[Settings]:
    with memory_kafka(partitions=2, kafka_timeout=1) as kafka:
        apply_topics(kafka.settings)
        yield kafka.settings


def entries(settings: Settings, shard: int = 0) -> list[tuple[str, DeliveryState | None]]:
    return [(entry.client, entry.state) for entry in ShardLedger(settings, WEEK, shard).entries()]


def test_a_newer_run_reads_what_the_older_one_wrote_and_stops_it(ready: Settings) -> None:
    older, newer = Ledger(ready, WEEK, 0), Ledger(ready, WEEK, 0)
    assert older.open().counts().total() == 0
    older.write([LedgerEntry("a", DeliveryState.SENDING), LedgerEntry("b", DeliveryState.SENDING)])
    older.write([LedgerEntry("a", DeliveryState.SENT, "<1@x>")])

    index = newer.open()
    assert index.states(["a", "b"]) == [DeliveryState.SENT, DeliveryState.SENDING]
    with pytest.raises(FencedError, match="shard 0 of 2026-W47"):
        older.write([LedgerEntry("b", DeliveryState.SENT, "<2@x>")])
    newer.write([LedgerEntry("b", DeliveryState.UNKNOWN)])
    assert entries(ready) == [
        ("a", DeliveryState.SENDING),
        ("b", DeliveryState.SENDING),
        ("a", DeliveryState.SENT),
        ("b", DeliveryState.UNKNOWN),
    ]


def test_shards_and_weeks_are_apart(ready: Settings) -> None:
    other_shard, other_week = Ledger(ready, WEEK, 1), Ledger(ready, WEEK.next, 0)
    for ledger in (other_shard, other_week):
        ledger.open()
    one = Ledger(ready, WEEK, 0)
    one.open()
    for ledger in (one, other_shard, other_week):
        ledger.write([LedgerEntry("a", DeliveryState.SENT)])
    assert entries(ready) == entries(ready, 1) == [("a", DeliveryState.SENT)]


def test_rows_say_where_and_when_a_client_has_which_state(ready: Settings) -> None:
    ledger = Ledger(ready, WEEK, 0)
    ledger.open()
    ledger.write(
        [LedgerEntry("a", DeliveryState.FAILED, "<1@x>", "550 no"), LedgerEntry("b", None)]
    )
    ledger.write([LedgerEntry("a", None, reason="checked by hand")])
    first, second = ShardLedger(ready, WEEK, 0).rows_of("a")
    assert (first["state"], first["offset"], first["reason"]) == ("failed", 0, "550 no")
    assert (second["state"], second["offset"], second["reason"]) == ("open", 3, "checked by hand")
