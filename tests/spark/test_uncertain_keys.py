"""Good records that Kafka deleted behind undecodable ones: a broker that cleans, real Spark."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from shardpost.delta import snapshots
from shardpost.holders.model.compacted_topics import UncertainKeysError
from shardpost.holders.spark.topic_update import behind_holes, maybe_cleaned, undecodable_only
from shardpost.kafka import clients
from shardpost.kafka.coordinates import OffsetRange, TopicPartition
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.reading import read_to_end
from shardpost.settings import Settings
from tests.support.compacting import held, run
from tests.support.job_process import wait_for
from tests.support.kafka_configs import SOON_CLEANED, busy_cleaner, configure_topic
from tests.support.reference import Raw, closed, position, produce, send

BAD = b"{"
# Tombstones are kept for a day: only what is superseded goes sooner.
CLEANED = SOON_CLEANED | {
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "86400000",
}


@pytest.fixture(autouse=True)
def _cleaner_that_seldom_rests(kafka: Settings) -> Iterator[None]:
    with busy_cleaner(kafka):
        yield


def clean_until_superseded(settings: Settings, key: str) -> None:
    """Have the cleaner delete all records of a position but the last.

    The segment that is written to is not cleaned: tombstones of another key end it.
    """
    topic = settings.topic("positions")
    partition = TopicPartition(topic, partition_of(key, 4))

    def is_alone() -> bool:
        now = int(time.time() * 1000)
        produce(settings, [Raw("positions", b"filler", None, now, partition.partition)])
        found = [message.key() for message in read_to_end(settings, partition)]
        return found.count(key.encode()) == 1

    wait_for(is_alone, f"the cleaner to leave one record of {key}", seconds=90)


@pytest.mark.timeout(600)
def test_a_tombstone_that_went_behind_an_undecodable_record_is_refused_and_then_named(
    fresh: Callable[[], Settings], caplog: pytest.LogCaptureFixture
) -> None:
    settings = fresh()
    topic = settings.topic("positions")
    configure_topic(settings, topic, CLEANED)
    produce(settings, [position("U1", "client1", "NASDAQ"), position("U2", "client1", "NASDAQ")])
    run(settings)
    produce(settings, [closed("U1"), Raw("positions", b"U1", BAD)])
    clean_until_superseded(settings, "U1")
    first = snapshots.current(settings)
    with pytest.raises(UncertainKeysError, match=f"{topic}: U1\\. The inputs"):
        run(settings)
    assert snapshots.list_all(settings) == [first]

    found = run(settings, reconcile=True, code=3)
    assert (found["uncertain"], found["uncertain_keys"]) == (1, {topic: ["U1"]})
    assert f"{topic}: key U1 is left as it is" in caplog.text
    assert held(settings) == {"client1": ["U1", "U2"]}

    produce(settings, [position("U3", "client2", "NASDAQ")])
    assert run(settings)["uncertain"] == 0
    produce(settings, [closed("U1")])
    run(settings)
    assert held(settings) == {"client1": ["U2"], "client2": ["U3"]}


def test_an_undecodable_record_among_those_of_transactions_is_no_suspicion(
    fresh: Callable[[], Settings],
) -> None:
    settings = fresh()
    topic = settings.topic("positions")
    configure_topic(settings, topic, {"min.compaction.lag.ms": "0"})
    here = {"partition": 0, "timestamp_ms": int(time.time() * 1000)}  # others would end the segment
    produce(settings, [position("1", "client1", "NASDAQ", **here)])
    run(settings)
    writer = clients.transactional_producer(settings, f"{topic}-writer")
    writer.init_transactions(30)
    for record in (
        position("1", "client2", "NASDAQ", **here),  # the one before is still there
        Raw("positions", b"9", BAD, **here),
    ):
        writer.begin_transaction()
        send(writer, settings, record)
        writer.commit_transaction(30)
    assert run(settings)["rejected"] == 1
    assert held(settings) == {"client2": ["1"]}


NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
HISTORY = (
    "key STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, retry_offset BIGINT,"
    " kind STRING"
)
RECORDS = "key STRING, partition INT, offset BIGINT"


def test_suspect_are_keys_with_nothing_but_old_undecodable_records(spark: SparkSession) -> None:
    young = NOW + timedelta(seconds=1)
    history = [
        ("bad", 0, 1, NOW, None, "rejected"),
        ("bad", 0, 2, young, None, "rejected"),
        ("young", 0, 3, young, None, "rejected"),
        ("good before", 0, 4, NOW, None, "upsert"),
        ("good before", 0, 5, NOW, None, "rejected"),
        ("closed since", 0, 6, NOW, None, "rejected"),
        ("closed since", 0, 7, NOW, None, "tombstone"),
        ("corrected", 0, 8, NOW, None, "rejected"),
        ("corrected", 0, 8, NOW, 70, "upsert"),
        ("retry alone", 0, 9, NOW, 71, "rejected"),
        (None, 0, 10, NOW, None, "rejected"),
        ("", 0, 11, NOW, None, "rejected"),
    ]
    found = undecodable_only(spark.createDataFrame(history, HISTORY), NOW)
    assert [tuple(row) for row in found.collect()] == [("bad", 0, 1)]


def test_a_hole_counts_for_what_is_above_it_in_its_partition(spark: SparkSession) -> None:
    offsets = {0: [10, 11, 14, 15], 1: [5, 6]}
    history = [
        ("k", partition, offset, NOW, None, "rejected")
        for partition, found in offsets.items()
        for offset in found
    ]
    new = spark.createDataFrame([*history, ("k", 1, 9, NOW, 3, "rejected")], HISTORY)
    bad = new.where("retry_offset is null").select("key", "partition", "offset")
    ranges = [OffsetRange("t", 0, 10, 16), OffsetRange("t", 1, 5, 9)]
    found = behind_holes(bad, new, ranges).collect()
    assert {(row["partition"], row["offset"]) for row in found} == {(0, 14), (0, 15)}


def test_a_superseded_record_that_is_there_shows_how_far_the_cleaner_has_not_been(
    spark: SparkSession,
) -> None:
    visible = [("a", 0, 1), ("b", 0, 2), ("a", 0, 6), ("b", 0, 9), ("a", 1, 7), ("c", 1, 8)]
    bad = [("x", 0, 5), ("y", 0, 7), ("z", 1, 9)]
    found = maybe_cleaned(
        spark.createDataFrame(bad, RECORDS), spark.createDataFrame(visible, RECORDS)
    )
    assert {row["key"] for row in found.collect()} == {"x", "z"}
