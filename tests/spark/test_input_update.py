"""What a reconciliation finds out about records by frames alone: what is gone, what is suspect."""

from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from shardpost.holders.spark.input_update import behind_holes, maybe_cleaned, undecodable_only
from shardpost.holders.spark.latest import highest_read, without
from shardpost.kafka.records import OffsetRange

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
RECORDS = "key STRING, partition INT, offset BIGINT"
LATEST = f"{RECORDS}, timestamp TIMESTAMP, seq BIGINT, retry_offset BIGINT, is_open BOOLEAN"
HISTORY = f"{RECORDS}, timestamp TIMESTAMP, seq BIGINT, retry_offset BIGINT, kind STRING"
UNDECODED = f"{RECORDS}, timestamp TIMESTAMP, retry_offset BIGINT, kind STRING"


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
        f"{RECORDS}, seq BIGINT",
    )
    visible = spark.createDataFrame([("a", 0, 1), ("x", 0, 2), ("d", 0, 4), ("e", 0, 5)], RECORDS)
    assert {row["key"] for row in without(highest, visible, 100).collect()} == {"b", "c", "d", "e"}


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
    found = undecodable_only(spark.createDataFrame(history, UNDECODED), NOW)
    assert [tuple(row) for row in found.collect()] == [("bad", 0, 1)]


def test_a_hole_counts_for_what_is_above_it_in_its_partition(spark: SparkSession) -> None:
    offsets = {0: [10, 11, 14, 15], 1: [5, 6]}
    history = [
        ("k", partition, offset, NOW, None, "rejected")
        for partition, found in offsets.items()
        for offset in found
    ]
    new = spark.createDataFrame([*history, ("k", 1, 9, NOW, 3, "rejected")], UNDECODED)
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
