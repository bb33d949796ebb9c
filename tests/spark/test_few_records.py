"""A few records are read by Python's client; what Spark's source would give is what it gives."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow.compute as pc
import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from shardpost.kafka import offsets
from shardpost.kafka.reading import BulkReading
from shardpost.kafka.records import OffsetRange
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.settings import Settings
from shardpost.spark import kafka_source
from shardpost.spark.kafka_source import FewRecords, read_ranges
from shardpost.topics.creation import apply_topics
from tests.support.installed import installed
from tests.support.kafka_configs import configure_topic
from tests.support.raw_headers import produce_raw
from tests.support.run_sizes import set_thresholds
from tests.support.transactions import begun_transaction

HEADERS: list[list[tuple[str, str | bytes | None]] | None] = [
    None,
    [("a", b"1"), ("a", None), ("b", b"\xff")],
    [("ä", b"")],
]


def by_nobody(*_: object) -> DataFrame:
    raise AssertionError("these records were read before")


def failing(*_: object, **__: object) -> Iterator[Message]:
    raise KafkaException(KafkaError(KafkaError._FATAL))


def as_they_are(records: DataFrame) -> list[str]:
    return sorted(map(repr, records.collect()))


def columns(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]


def whole(settings: Settings, topic: str) -> list[OffsetRange]:
    """Return all offsets of a topic."""
    marks = offsets.watermarks(
        installed(settings).kafka,
        partition_counts(installed(settings).kafka, [topic]),
        committed=True,
    )
    return [OffsetRange(topic, number, *ends) for number, ends in marks[topic].items()]


@pytest.fixture
def topics(settings: Settings) -> tuple[str, str]:
    """Give two topics with records of all shapes, transactions among them; one has no records."""
    apply_topics(installed(settings))
    topic, draw = settings.topic("positions"), random.Random(7)  # noqa: S311 - always the same
    configure_topic(settings, topic, {"cleanup.policy": "delete", "retention.ms": "-1"})
    plain = installed(settings).kafka.producer()
    for outcome in ("commit", "abort", "commit"):
        own = begun_transaction(settings, f"writer/{topic}")
        for producer in (own, plain):
            for number in range(20):
                key = draw.choice([None, b"", b"\xff", b"%d" % number])
                value = draw.choice([None, b"", b"\xff", b"{}", b"x" * 5000])
                at, headers = 1_790_000_000_000 + number, draw.choice(HEADERS)
                producer.produce(topic, value, key, timestamp=at, headers=headers)
        assert own.flush(30) == 0
        own.commit_transaction() if outcome == "commit" else own.abort_transaction()
        assert plain.flush(30) == 0
    return topic, settings.topic("clients")


def test_they_are_those_of_sparks_source(
    settings: Settings, spark: SparkSession, topics: Sequence[str]
) -> None:
    ranges = [range_ for topic in topics for range_ in whole(settings, topic)]
    few = FewRecords.read(installed(settings).kafka, ranges)
    assert few is not None
    own = partial(few.or_else, by_nobody)
    for topic in topics:
        wanted = [range_ for range_ in ranges if range_.topic == topic]
        there, expected = (
            own(spark, installed(settings).kafka, wanted),
            read_ranges(spark, installed(settings).kafka, wanted),
        )
        assert columns(there.schema) == columns(expected.schema)
        assert as_they_are(there) == as_they_are(expected)
    [some, *_] = ranges
    assert as_they_are(own(spark, installed(settings).kafka, [some])) == as_they_are(
        read_ranges(spark, installed(settings).kafka, [some])
    )
    [first, *others] = (one for one in ranges if one.topic == topics[0])
    of_others = {
        topic: rows.filter(pc.field("partition") != first.partition)
        for topic, rows in few.rows.items()
    }
    without = partial(FewRecords(few.ranges, of_others).or_else, by_nobody)
    assert others
    assert columns(without(spark, installed(settings).kafka, [first]).schema) == columns(
        expected.schema
    )
    assert without(spark, installed(settings).kafka, [first]).count() == 0
    assert 0 < len(few.rows[topics[0]]) < sum(range_.size for range_ in ranges)


def test_other_ranges_are_read_as_ever(
    settings: Settings, spark: SparkSession, topics: Sequence[str]
) -> None:
    ranges = whole(settings, topics[0])
    [part] = [OffsetRange(r.topic, r.partition, r.first, r.until - 1) for r in ranges[:1]]
    few = FewRecords.read(installed(settings).kafka, ranges)
    assert few is not None
    assert as_they_are(
        few.or_else(read_ranges, spark, installed(settings).kafka, [part])
    ) == as_they_are(read_ranges(spark, installed(settings).kafka, [part]))


def test_what_is_too_much_or_cannot_be_read_whole_is_left_to_sparks_source(
    settings: Settings, topics: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, _ = topics
    ranges = whole(settings, topic)
    with monkeypatch.context() as patch:
        set_thresholds(patch, bytes_at_once=5000)
        assert FewRecords.read(installed(settings).kafka, ranges) is None
    with monkeypatch.context() as patch:
        set_thresholds(patch, read_at_once=sum(range_.size for range_ in ranges) - 1)
        assert FewRecords.read(installed(settings).kafka, ranges) is None
    with monkeypatch.context() as patch:
        patch.setattr(BulkReading, "messages", failing)
        assert FewRecords.read(installed(settings).kafka, ranges) is None
    gone = next(range_ for range_ in ranges if range_.size > 1)
    before = [KafkaPartition(topic, gone.partition, gone.first + 1)]
    for done in installed(settings).kafka.admin().delete_records(before).values():
        done.result(30)
    assert FewRecords.read(installed(settings).kafka, ranges) is None
    assert FewRecords.read(installed(settings).kafka, whole(settings, topic)) is not None
    assert FewRecords.read(installed(settings).kafka, []) is None


def test_so_is_a_header_whose_name_is_no_text(settings: Settings) -> None:
    apply_topics(installed(settings))
    topic = settings.topic("positions")
    produce_raw(settings, topic, b"k", b"v", [(b"\xff", b"1")])
    assert FewRecords.read(installed(settings).kafka, whole(settings, topic)) is None


@pytest.mark.parametrize("more", [0, 100])  # no marker that is yet to come
def test_a_reader_whose_time_ran_out_is_not_used_again(
    settings: Settings, topics: Sequence[str], monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(kafka_source, "FEW_SECONDS", 5.0 if more == 0 else 0.3)
    ranges = [replace(one, until=one.until + more) for one in whole(settings, topics[0])]
    with installed(settings).kafka.consumers.keeping():
        assert (FewRecords.read(installed(settings).kafka, ranges) is None) is bool(more)
        assert len(installed(settings).kafka.consumers._kept) == (0 if more else 1)
