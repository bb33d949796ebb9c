"""Lost tombstones and recreated topics: a real broker that cleans its logs, real Spark, tables."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql import SparkSession

from shardpost import tables
from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot, rows
from shardpost.errors import NEEDS_ATTENTION, ShardpostError
from shardpost.holders.compaction_job import COMPACT_POSITIONS, CompactionRequest
from shardpost.holders.model.compacted_topics import TombstonesLostError
from shardpost.holders.model.view_tables import POSITION_EVENTS, POSITIONS
from shardpost.holders.spark.latest import highest_read, without
from shardpost.kafka import clients
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.reading import read_to_end
from shardpost.settings import Settings
from tests.support.compacting import agree, held, run, starter
from tests.support.how_far import drawn
from tests.support.job_process import Job, wait_for
from tests.support.jobs_here import CommandsHere
from tests.support.kafka_configs import (
    SOON_CLEANED,
    busy_cleaner,
    configure_topic,
    wait_until_shown,
)
from tests.support.recreated_topic import recreate_topic
from tests.support.reference import (
    Fold,
    Raw,
    Retry,
    closed,
    exchange,
    position,
    produce,
    produce_retry,
    send,
)

FORGETFUL = SOON_CLEANED | {
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "1",
}


@pytest.fixture(autouse=True)
def _cleaner_that_seldom_rests(kafka: Settings) -> Iterator[None]:
    with busy_cleaner(kafka):
        yield


def clean_until_gone(settings: Settings, *keys: str) -> None:
    """Have the cleaner delete all records of these positions, the last of which are tombstones.

    The segment that is written to is not cleaned: so tombstones of a key that never was are written
    until nothing else is left of them. Their timestamps end a segment, too.
    """
    topic = settings.topic("positions")
    configure_topic(settings, topic, FORGETFUL)
    partitions = {TopicPartition(topic, partition_of(key, 4)) for key in keys}

    def are_gone() -> bool:
        now = int(time.time() * 1000)
        fillers = [Raw("positions", b"filler", None, now, one.partition) for one in partitions]
        produce(settings, fillers)
        found = {m.key() for one in partitions for m in read_to_end(settings, one)}
        return found.isdisjoint(key.encode() for key in keys)

    wait_for(are_gone, f"the cleaner to delete {', '.join(keys)}", seconds=90)


@contextmanager
def at_step(name: str, do: Callable[[], object]) -> Iterator[None]:
    """Do something once, as the named step of a run begins."""

    class Doing(logging.Handler):
        is_done = False

        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == f"step: {name}" and not self.is_done:
                self.is_done = True
                do()

    handler, logger = Doing(), logging.getLogger("shardpost.logs")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield
        assert handler.is_done
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def reconciled_keys(settings: Settings) -> list[str]:
    version = {POSITION_EVENTS: snapshots.current(settings).tables[POSITION_EVENTS.name]}
    sql = "SELECT key FROM position_events WHERE kind = 'reconciled' ORDER BY key"
    return [row["key"] for row in rows(settings, sql, version)]


def client_of(settings: Settings, key: str) -> str | None:
    at = at_snapshot(snapshots.current(settings), POSITIONS)
    found = rows(settings, "SELECT key, client, is_open FROM positions", at)
    return next((row["client"] for row in found if row["key"] == key and row["is_open"]), None)


BAD = b"{"


@pytest.mark.timeout(600)
def test_lost_tombstones_are_refused_and_a_reconciliation_closes_what_they_closed(
    fresh: Callable[[], Settings],
) -> None:
    settings = fresh()
    bad = {key: Raw("positions", key.encode(), BAD) for key in ("5", "6", "7", "8", "9")}
    before = [position(str(n), "client1", "NASDAQ") for n in range(1, 6)] + [*bad.values()]
    places = produce(settings, before)
    fold = Fold()
    fold.add(starter() + before)
    mended = [Retry(bad[key], position(key, "client1", "NASDAQ").value) for key in ("7", "8")]
    for retry in mended:
        produce_retry(settings, retry, places[id(retry.origin)])
    fold.add(mended)
    run(settings)
    agree(settings, fold)

    # 1 was closed, 2 closed and opened again, 3 is undecodable since, 4 and 8 are as they were. Of
    # 5, 6 and 7 a record was undecodable, and they are closed since.
    after = [*map(closed, ("1", "2", "5", "6", "7")), position("2", "client2", "NASDAQ")]
    after += [Raw("positions", b"3", BAD)]
    produce(settings, after)
    clean_until_gone(settings, "1", "5", "6", "7")
    first = snapshots.current(settings)
    with pytest.raises(TombstonesLostError, match=settings.topic("positions")) as refused:
        run(settings)
    assert refused.value.exit_code == 3
    assert snapshots.list_all(settings) == [first]
    agree(settings, fold)

    fold.add(after)
    result = run(settings, reconcile=True, code=NEEDS_ATTENTION)
    agree(settings, fold)
    assert reconciled_keys(settings) == ["1", "5", "6", "7"]
    assert (result["reconciled"], result["uncertain"]) == (4, 1)
    # A good record of 3 may have gone behind the undecodable one.
    assert result["uncertain_keys"] == {settings.topic("positions"): ["3"]}
    changes = [(t.position, t.change) for t in tables.explain("client1", settings=settings)]
    assert [key for key, change in changes if change == "reconciled"] == ["1", "5", "7"]

    # Corrections of what is gone come too late; and there is nothing left to reconcile.
    late = [Retry(bad[key], position(key, "client3", "NASDAQ").value) for key in ("5", "6", "7")]
    for retry in late:
        produce_retry(settings, retry, places[id(retry.origin)])
    result = run(settings, reconcile=True)
    agree(settings, fold)
    assert (result["without_effect"], result["reconciled"]) == (3, 0)


def test_offsets_of_aborted_transactions_are_suspect_and_a_reconciliation_changes_nothing(
    fresh: Callable[[], Settings],
) -> None:
    settings = fresh()
    fold = Fold()
    produce(settings, [position("1", "client1", "NASDAQ")])
    fold.add([*starter(), position("1", "client1", "NASDAQ")])
    run(settings)
    configure_topic(settings, settings.topic("positions"), FORGETFUL | {"segment.ms": "86400000"})
    producer = clients.transactional_producer(settings, f"{settings.topic('positions')}-writer")
    producer.init_transactions(30)
    producer.begin_transaction()
    send(producer, settings, position("1", "client2", "NASDAQ"))
    producer.flush(30)
    producer.abort_transaction(30)
    shardpost = CommandsHere(settings.environ())
    line = shardpost.refused("compact", code=3)
    assert f"{settings.topic('positions')} has records at 0 of the 2 offsets" in line
    assert "Run `shardpost compact --reconcile`" in line
    assert shardpost.json("compact", "--reconcile")["reconciled"] == 0
    agree(settings, fold)
    assert run(settings)["changed"] is False


@pytest.mark.parametrize("count", drawn([2, 40]), ids={2: "shorter", 40: "longer"}.get)
def test_a_recreated_topic_is_refused_and_a_reconciliation_takes_it_for_what_it_is(
    fresh: Callable[[], Settings],
    count: int,
) -> None:
    settings = fresh()
    topic = settings.topic("positions")
    bad = Raw("positions", b"bad", BAD)
    produce(settings, [position(str(n), "client1", "NASDAQ") for n in range(20)])
    places = produce(settings, [bad])
    run(settings)
    recreate_topic(settings, topic, 4, cleanup_policy="compact")
    new = [position(str(n), "client2", "NYSE") for n in range(10, 10 + count)]
    produce(settings, [*new, Raw("positions", b"5", BAD)])
    with pytest.raises(ShardpostError, match=f"topic {topic}: expected the id .* --reconcile"):
        run(settings)
    assert held(settings) == {"client1": [str(n) for n in range(20)]}

    run(settings, reconcile=True)
    fold = Fold()
    fold.add([*starter(), bad, position("5", "client1", "NASDAQ"), *new])
    fold.rejected += 1
    agree(settings, fold)
    produce(settings, [closed("10"), position("3", "client3", "NASDAQ")])
    produce_retry(settings, Retry(bad, position("bad", "x", "NYSE").value), places[id(bad)])
    fold.add([closed("10"), position("3", "client3", "NASDAQ")])
    assert run(settings)["without_effect"] == 1
    agree(settings, fold)


def test_a_position_that_is_written_while_it_is_reconciled_is_left_to_the_next_run(
    fresh: Callable[[], Settings],
) -> None:
    settings = fresh()
    topic = settings.topic("positions")
    produce(settings, [position(str(n), "client1", "NASDAQ") for n in range(3)])
    run(settings)
    recreate_topic(settings, topic, 4, cleanup_policy="compact")
    produce(settings, [position("9", "client9", "LON")])
    again = position("1", "client2", "NASDAQ")
    with at_step("positions reconciliation", lambda: produce(settings, [again])):
        run(settings, reconcile=True)
    assert reconciled_keys(settings) == ["0", "2"]
    assert held(settings) == {"client1": ["1"]}
    run(settings)
    assert held(settings) == {"client2": ["1"]}
    assert client_of(settings, "1") == "client2"


@pytest.mark.one_of("kills of a compaction")
@pytest.mark.timeout(600)
def test_a_reconciliation_killed_at_every_step_of_its_own_ends_as_an_unbroken_one(
    fresh: Callable[[], Settings],
) -> None:
    settings = fresh()
    fold = Fold()
    produce(settings, [position(str(n), f"client{n % 3}", "LON") for n in range(9)])
    produce(settings, [exchange("LON", "US")])
    run(settings)
    before = held(settings)
    recreate_topic(settings, settings.topic("positions"), 4, cleanup_policy="compact")
    new = [position(str(n), "client1", "NASDAQ") for n in range(4)]
    produce(settings, new)
    for name in drawn(["positions reconciliation", "positions closing", "commit"]):
        job = Job(settings, COMPACT_POSITIONS, CompactionRequest(reconcile=True), pause_at=name)
        try:
            job.wait_until_paused()
        finally:
            job.kill()
        assert held(settings) == before
    run(settings, reconcile=True)
    fold.add([*starter(), exchange("LON", "US"), *new])
    agree(settings, fold)
    assert len(reconciled_keys(settings)) == 5
    assert snapshots.current(settings).number == 2


def test_added_partitions_do_not_make_a_record_seem_gone(fresh: Callable[[], Settings]) -> None:
    settings = fresh()
    produce(settings, [position(str(n), "client1", "NASDAQ") for n in range(20)])
    run(settings)
    topic = settings.topic("positions")
    more = clients.admin(settings)
    more.create_partitions([NewPartitions(topic, 8)])[topic].result(30)
    wait_until_shown(settings, topic, 8)
    assert run(settings, reconcile=True)["reconciled"] == 0
    assert held(settings) == {"client1": [str(n) for n in range(20)]}


LATEST = (
    "key STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, seq BIGINT,"
    " retry_offset BIGINT, is_open BOOLEAN"
)
HISTORY = (
    "key STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, seq BIGINT,"
    " retry_offset BIGINT, kind STRING"
)


def test_what_can_be_closed_is_the_highest_record_of_a_key_that_is_open_or_may_be_opened(
    spark: SparkSession,
) -> None:
    latest = [
        ("open", 0, 1, None, 1, None, True),
        ("closed", 0, 2, None, 2, None, False),
        ("corrected", 0, 3, None, 3, 70, True),
        ("closed by a correction", 0, 4, None, 4, 71, False),
        ("bad since", 0, 5, None, 5, None, True),
        ("closed, bad since", 0, 6, None, 6, None, False),
        ("bad before", 0, 19, None, 19, None, True),
    ]
    history = [
        ("open", 0, 1, None, 1, None, "upsert"),
        ("corrected", 0, 3, None, 3, None, "rejected"),
        ("closed by a correction", 0, 4, None, 4, None, "rejected"),
        ("bad since", 0, 15, None, 15, None, "rejected"),
        ("bad since", 0, 15, None, 15, 72, "rejected"),  # a correction that is no better
        ("closed, bad since", 0, 16, None, 16, None, "rejected"),
        ("bad before", 0, 9, None, 9, None, "rejected"),
        ("only bad", 0, 17, None, 17, None, "rejected"),
        (None, 0, 18, None, None, None, "rejected"),
        ("", 0, 20, None, 20, None, "rejected"),
    ]
    found = highest_read(
        spark.createDataFrame(latest, LATEST), spark.createDataFrame(history, HISTORY)
    )
    assert {(row["key"], row["offset"]) for row in found.collect()} == {
        ("open", 1),
        ("corrected", 3),
        ("closed by a correction", 4),
        ("bad since", 15),
        ("closed, bad since", 16),
        ("bad before", 19),
        ("only bad", 17),
    }


def test_a_record_is_there_if_its_key_is_at_its_offset_in_this_generation(
    spark: SparkSession,
) -> None:
    highest = spark.createDataFrame(
        [("a", 0, 1, 101), ("b", 0, 2, 102), ("c", 0, 3, 103), ("d", 1, 4, 104), ("e", 0, 5, 99)],
        "key STRING, partition INT, offset BIGINT, seq BIGINT",
    )
    visible = spark.createDataFrame(
        [("a", 0, 1), ("x", 0, 2), ("d", 0, 4), ("e", 0, 5)],
        "key STRING, partition INT, offset BIGINT",
    )
    assert {row["key"] for row in without(highest, visible, 100).collect()} == {"b", "c", "d", "e"}
