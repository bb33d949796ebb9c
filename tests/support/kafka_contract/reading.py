"""Reading a partition to its end, and its watermarks."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from confluent_kafka import KafkaException

from shardpost.errors import ShardpostError
from shardpost.kafka.clients import AwaitedRecords
from shardpost.kafka.kafka import KafkaUnreachableError
from shardpost.kafka.offsets import (
    beginnings,
    endings,
    first_offsets_since,
    watermark_of,
    watermarks,
)
from shardpost.kafka.reading import read_one, read_to_end
from shardpost.kafka.records import Outgoing, TopicPartition
from shardpost.kafka.topic_metadata import partition_counts
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.kafka_contract.cluster import Cluster, record


def _wait_for_the_marker(cluster: Cluster, topic: TopicPartition, end: int) -> None:
    """Wait until the stable offset is there: a broker writes markers after it has answered."""
    at = cluster.settings
    wait_for(
        lambda: watermark_of(installed(at).kafka, topic, committed=True) == (0, end), "the marker"
    )


class ReadingContract:
    """`read_to_end`."""

    def test_all_records_are_read_in_order_with_tombstones_and_without_keys(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.topic()
        assert cluster.read(topic) == []
        cluster.put(topic, (b"a", b"1"), (None, b"2"), (b"a", None), (b"", b""))
        assert cluster.read(topic) == [(b"a", b"1"), (None, b"2"), (b"a", None), (b"", b"")]

    def test_reading_starts_at_an_offset(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        cluster.put(topic, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
        assert cluster.read(topic, start=1) == [(b"b", b"2"), (b"c", b"3")]
        assert cluster.read(topic, start=3) == []
        assert cluster.read(topic, start=99) == []

    def test_a_record_keeps_its_headers_and_its_time(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        headers: list[tuple[str, str | bytes | None]] = [("x", "text"), ("x", b"\xff"), ("y", None)]
        cluster.writer(topic.topic).write([Outgoing(*topic[:1], b"k", b"v", headers, 0, 1234)])
        [found] = read_to_end(installed(cluster.settings).kafka, topic)
        assert found.headers() == [("x", b"text"), ("x", b"\xff"), ("y", None)]
        assert found.timestamp()[1] == 1234
        assert (found.topic(), found.partition(), found.offset()) == (topic.topic, 0, 0)

    def test_the_first_record_since_a_time_is_found(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        at = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=9)
        times = [int((at + timedelta(hours=hour)).timestamp() * 1000) for hour in (0, 2, 1, 3)]
        records = [Outgoing(topic.topic, b"k", b"v", [], 0, time) for time in times]
        cluster.writer(topic.topic).write(records)

        def first(hours: float) -> int:
            at_ms = int((at + timedelta(hours=hours)).timestamp() * 1000)
            return first_offsets_since(installed(cluster.settings).kafka, [topic], at_ms).offsets[
                topic
            ]

        assert [first(-1), first(0), first(0.5), first(2), first(2.5)] == [0, 0, 1, 1, 3]
        assert first(4) in {-1, len(records)}  # none, or the marker of the transaction
        assert first(10) == -1

    def test_the_broker_stamps_a_topic_of_log_append_time(self, cluster: Cluster) -> None:
        topic = cluster.topic(message_timestamp_type="LogAppendTime")
        cluster.writer(topic.topic).write([Outgoing(topic.topic, b"k", b"v", [], 0, 1234)])
        [found] = read_to_end(installed(cluster.settings).kafka, topic)
        assert found.timestamp()[1] > 1_600_000_000_000

    def test_a_partition_may_end_with_the_marker_of_a_transaction(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        cluster.writer(topic.topic).write([record(topic, b"a")])
        # A broker writes the marker after it has answered; of its first transaction, long after.
        ends = partial(watermark_of, installed(cluster.settings).kafka, topic, committed=True)
        wait_for(lambda: ends() == (0, 2), "the marker")
        assert cluster.read(topic) == [(b"a", b"v")]
        assert cluster.read(topic, start=1) == []

    def test_what_was_aborted_is_read_only_by_who_reads_the_uncommitted(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.topic()
        cluster.put(topic, (b"a", b"1"))
        with cluster.open_transaction(topic) as stranger:
            stranger.abort_transaction(20)
        cluster.put(topic, (b"b", b"2"))
        every = [(b"a", b"1"), (b"stranger", b"open"), (b"b", b"2")]
        assert cluster.read(topic) == [every[0], every[2]]
        assert cluster.read(topic, uncommitted=True) == every

    def test_the_committed_end_before_an_open_transaction(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        every = [(b"a", b"1"), (b"stranger", b"open"), (b"b", b"2")]
        cluster.put(topic, (b"a", b"1"))
        with cluster.open_transaction(topic) as stranger:
            cluster.put(topic, (b"b", b"2"))
            assert cluster.read(topic, committed=True) == [(b"a", b"1")]
            assert cluster.read(topic, uncommitted=True) == every
            stranger.commit_transaction(20)
        _wait_for_the_marker(cluster, topic, 4)
        assert cluster.read(topic, committed=True) == every

    def test_the_committed_end_behind_what_was_aborted_beside_an_open_transaction(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.topic()
        aborted, is_open = (f"{topic.topic}/{name}" for name in ("aborted", "open"))
        with (
            cluster.open_transaction(topic, transactional_id=aborted) as first,
            cluster.open_transaction(topic, transactional_id=is_open) as second,
        ):
            first.abort_transaction(20)  # its marker lies above what is open
            _wait_for_the_marker(cluster, topic, 1)
            assert cluster.read(topic, committed=True) == []
            second.commit_transaction(20)
        assert cluster.read(topic) == [(b"stranger", b"open")]

    def test_one_record_is_read_at_its_offset(self, cluster: Cluster) -> None:
        topic, kafka = cluster.topic(), installed(cluster.settings).kafka
        cluster.put(topic, (b"a", b"1"))
        with cluster.open_transaction(topic) as stranger:
            stranger.abort_transaction(20)
        _wait_for_the_marker(cluster, topic, 3)
        cluster.put(topic, (b"b", b"2"))
        with cluster.open_transaction(topic, transactional_id=f"{topic.topic}/open"):
            found = [read_one(kafka, topic, offset) for offset in range(6)]
        # The mark by which the first transaction ended is none; nor is there a sixth yet.
        assert [one and one.key for one in found] == [b"a", None, None, b"b", None, None]

    def test_by_default_it_waits_for_an_open_transaction_and_then_says_where_it_is(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.topic()
        cluster.put(topic, (b"a", b"1"))
        with cluster.open_transaction(topic) as stranger:
            reading = read_to_end(installed(cluster.impatient).kafka, topic)
            assert next(reading).key() == b"a"
            with pytest.raises(KafkaUnreachableError) as raised:
                list(reading)
            stranger.abort_transaction(20)
        assert f"{topic}@1: no progress to the end 2 for 1 s" in str(raised.value)
        assert cluster.read(topic) == [(b"a", b"1")]

    def test_it_reads_on_when_the_open_transaction_ends_but_not_what_came_since(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.topic()
        cluster.put(topic, (b"a", b"1"))
        with cluster.open_transaction(topic) as stranger:
            cluster.put(topic, (b"b", b"2"))
            reading = read_to_end(installed(cluster.settings).kafka, topic)
            assert next(reading).key() == b"a"
            cluster.put(topic, (b"c", b"3"))
            stranger.commit_transaction(20)
            assert [message.key() for message in reading] == [b"stranger", b"b"]

    def test_holes_of_compaction_are_passed_over(self, cluster: Cluster) -> None:
        topic = cluster.topic(cleanup_policy="compact")
        cluster.put(topic, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", b"4"))
        cluster.compact(topic)
        assert cluster.read(topic)[:2] == [(b"a", b"3"), (b"b", b"4")]
        assert cluster.read(topic, start=1)[:2] == [(b"a", b"3"), (b"b", b"4")]
        assert cluster.read(topic, start=3)[:1] == [(b"b", b"4")]
        assert watermark_of(installed(cluster.settings).kafka, topic, committed=True)[0] == 0

    def test_reading_begins_at_the_low_watermark(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        cluster.put(topic, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
        cluster.delete_before(topic, 2)
        assert watermark_of(installed(cluster.settings).kafka, topic, committed=False) == (2, 3)
        assert cluster.read(topic) == [(b"c", b"3")]
        assert cluster.read(topic, start=1) == [(b"c", b"3")]
        cluster.delete_before(topic, 3)
        assert cluster.read(topic) == []


class WatermarksContract:
    """`partition_counts`, `watermarks` and `watermark_of`."""

    def test_who_waits_for_a_record_is_woken_by_each_one_from_an_offset_on(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.topic()
        cluster.put(topic, (b"a", b"1"))
        with closing(AwaitedRecords(installed(cluster.settings).kafka.consumer)) as awaited:
            assert not awaited.wait({topic: 1}, 0.1)
            assert awaited.wait({topic: 0}, 30)
            cluster.put(topic, (b"b", b"2"))
            assert awaited.wait({topic: 1}, 30)
            assert not awaited.wait({topic: 2}, 0.1)

    def test_topics_have_partitions_with_a_low_and_a_high_watermark(self, cluster: Cluster) -> None:
        one, two = cluster.topic(), cluster.topic(2)
        cluster.put(TopicPartition(two.topic, 1), (b"a", b"1"), (b"b", b"2"))
        counts = partition_counts(installed(cluster.settings).kafka, [one.topic, two.topic])
        assert counts == {one.topic: 1, two.topic: 2}
        for committed in (True, False):
            assert watermarks(installed(cluster.settings).kafka, counts, committed=committed) == {
                one.topic: {0: (0, 0)},
                two.topic: {0: (0, 0), 1: (0, 2)},
            }

    def test_the_committed_end_is_the_last_stable_offset(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        cluster.put(topic, (b"a", b"1"))
        with cluster.open_transaction(topic) as stranger:
            cluster.put(topic, (b"b", b"2"))
            assert watermark_of(installed(cluster.settings).kafka, topic, committed=True) == (0, 1)
            assert watermark_of(installed(cluster.settings).kafka, topic, committed=False) == (0, 3)
            stranger.abort_transaction(20)
        _wait_for_the_marker(cluster, topic, 4)

    def test_a_topic_that_does_not_exist_is_named(self, cluster: Cluster) -> None:
        with pytest.raises(ShardpostError, match="has no topic nowhere"):
            partition_counts(installed(cluster.settings).kafka, ["nowhere"])
        unknown = r"Unknown topic or partition|Failed to query partition leaders"
        with pytest.raises(KafkaUnreachableError, match=unknown):
            watermark_of(
                installed(cluster.impatient).kafka, TopicPartition("nowhere", 0), committed=True
            )

    def test_of_many_partitions_each_answers_for_itself(self, cluster: Cluster) -> None:
        there, nowhere = cluster.topic(), TopicPartition("nowhere", 0)
        cluster.put(there, (b"a", b"1"), (b"b", b"2"))
        cluster.delete_before(there, 1)
        for ask, expected in ((beginnings, 1), (partial(endings, committed=True), 2)):
            listed = ask(installed(cluster.impatient).kafka, [there, nowhere])
            assert listed.found[there].offset == expected
            assert [*listed.failed] == [nowhere]
            with pytest.raises(KafkaException, match="nknown"):
                _ = listed.offsets
