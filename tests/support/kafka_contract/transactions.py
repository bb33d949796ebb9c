"""Writing in transactions, and the offsets of groups."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

import pytest
from confluent_kafka import KafkaException

from shardpost.errors import ShardpostError
from shardpost.kafka import topic_metadata
from shardpost.kafka.kafka import KafkaUnreachableError
from shardpost.kafka.offsets import commit_offsets, committed_offset, watermark_of
from shardpost.kafka.records import Outgoing, TopicPartition, partition_of
from shardpost.kafka.transactions import (
    Consumed,
    FencedError,
    TooLargeError,
    TransactionError,
    Transactions,
    anyone,
)
from tests.support.installed import installed
from tests.support.kafka_contract.cluster import Cluster, of, record


class Records:
    """Records that are made each time they are iterated, and how often that was."""

    def __init__(self, make: Callable[[int], Iterator[Outgoing]]) -> None:
        self._make, self.count = make, 0

    def __iter__(self) -> Iterator[Outgoing]:
        self.count += 1
        return self._make(self.count)


def delivered(writer: Transactions) -> None:
    """Wait until the broker has answered for all that was written so far."""
    with suppress(KafkaException):
        writer._producer.flush(20)


class GroupsContract:
    """The offsets of consumer groups."""

    def test_a_group_has_no_offset_until_it_commits_one(self, cluster: Cluster) -> None:
        topic = cluster.topic(2)
        with cluster.group(f"group-{topic.topic}") as reader:
            assert committed_offset(installed(cluster.settings).kafka, reader, topic) is None
            commit_offsets(
                installed(cluster.settings).kafka, f"group-{topic.topic}", {topic.topic: {0: 7}}
            )
            assert committed_offset(installed(cluster.settings).kafka, reader, topic) == 7
            assert (
                committed_offset(
                    installed(cluster.settings).kafka, reader, TopicPartition(topic.topic, 1)
                )
                is None
            )
        with cluster.group(f"other-{topic.topic}") as other:
            assert committed_offset(installed(cluster.settings).kafka, other, topic) is None

    def test_offsets_have_metadata(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        with cluster.group(f"group-{topic.topic}") as reader:
            reader.commit(offsets=[of(topic, 5, '{"snapshot": 3}')], asynchronous=False)
            [found] = reader.committed([of(topic)], timeout=20)
            assert (found.offset, found.metadata) == (5, '{"snapshot": 3}')

    def test_an_offset_is_committed_with_its_transaction(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        with cluster.group(f"group-{topic.topic}") as reader:
            writer = cluster.writer(topic.topic)
            writer.write([record(topic, b"a")], Consumed(reader, topic, 3))
            assert committed_offset(installed(cluster.settings).kafka, reader, topic) == 3
            writer.write([], Consumed(reader, topic, 4))
            assert committed_offset(installed(cluster.settings).kafka, reader, topic) == 4
        assert cluster.read(topic) == [(b"a", b"v")]

    def test_an_offset_is_not_given_while_a_transaction_may_move_it(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        group = f"group-{topic.topic}"
        commit_offsets(installed(cluster.settings).kafka, group, {topic.topic: {0: 1}})
        with cluster.group(group) as reader, cluster.open_transaction(topic) as stranger:
            metadata = reader.consumer_group_metadata()
            stranger.send_offsets_to_transaction([of(topic, 9)], metadata, 20)
            with pytest.raises(KafkaUnreachableError):
                committed_offset(installed(cluster.impatient).kafka, reader, topic)
            with cluster.group(group, **{"isolation.level": "read_uncommitted"}) as hasty:
                assert committed_offset(installed(cluster.settings).kafka, hasty, topic) == 1
            stranger.abort_transaction(20)
            assert committed_offset(installed(cluster.settings).kafka, reader, topic) == 1

    def test_no_offset_can_be_committed_of_a_topic_that_does_not_exist(
        self, cluster: Cluster
    ) -> None:
        with pytest.raises(KafkaUnreachableError, match="Unknown topic"):
            commit_offsets(installed(cluster.settings).kafka, "group", {"nowhere": {0: 1}})


class TransactionsContract:
    """`Transactions`."""

    def test_a_transaction_is_seen_whole_over_all_topics(self, cluster: Cluster) -> None:
        one, two = cluster.topic(), cluster.topic()
        seen: list[object] = []

        def look() -> None:
            seen.extend([cluster.read(one, committed=True), cluster.read(two, committed=True)])
            seen.append(len(cluster.read(one, uncommitted=True)))

        writer = cluster.writer(one.topic)
        writer.write([record(one, b"a"), record(two, b"b"), record(one, b"c")], check=look)
        assert seen == [[], [], 2]
        assert cluster.read(one) == [(b"a", b"v"), (b"c", b"v")]
        assert cluster.read(two) == [(b"b", b"v")]

    def test_nothing_is_done_without_records_and_offsets(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        cluster.writer(topic.topic).write([])
        assert watermark_of(installed(cluster.settings).kafka, topic, committed=False) == (0, 0)

    def test_a_check_that_fails_aborts_and_the_writer_goes_on(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        writer = cluster.writer(topic.topic)

        def fail() -> None:
            raise ShardpostError("not now")

        with cluster.group(f"group-{topic.topic}") as reader:
            with pytest.raises(ShardpostError, match="not now"):
                writer.write([record(topic, b"a")], Consumed(reader, topic, 9), check=fail)
            assert committed_offset(installed(cluster.settings).kafka, reader, topic) is None
        writer.write([record(topic, b"b")])
        assert cluster.read(topic) == [(b"b", b"v")]
        assert cluster.read(topic, uncommitted=True) == [(b"a", b"v"), (b"b", b"v")]

    def test_a_new_writer_aborts_what_the_old_one_left_open(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        with cluster.open_transaction(topic, transactional_id=topic.topic) as old:
            writer = cluster.writer(topic.topic)
            assert cluster.read(topic) == []
            with pytest.raises(KafkaException):
                old.commit_transaction(20)
        writer.write([record(topic, b"b")])
        assert cluster.read(topic) == [(b"b", b"v")]

    @pytest.mark.parametrize("with_offset", [False, True])
    def test_a_fenced_writer_has_no_effect_and_says_so_for_ever(
        self, cluster: Cluster, with_offset: bool, capfd: pytest.CaptureFixture[str]
    ) -> None:
        topic = cluster.topic()
        old = cluster.writer(topic.topic)
        old.write([record(topic, b"a")])
        new = cluster.writer(topic.topic)
        with cluster.group(f"group-{topic.topic}") as reader:
            consumed = Consumed(reader, topic, 9) if with_offset else None
            records = [] if with_offset else [record(topic, b"b")]
            for _ in range(2):
                with pytest.raises(FencedError, match=r"^fenced$"):
                    old.write(records, consumed)
            assert committed_offset(installed(cluster.settings).kafka, reader, topic) is None
        assert capfd.readouterr().err == ""  # librdkafka would print a line, FATAL
        old.close()
        new.write([record(topic, b"c")])
        assert cluster.read(topic) == [(b"a", b"v"), (b"c", b"v")]
        assert cluster.read(topic, uncommitted=True) == cluster.read(topic)

    def test_a_writer_that_is_fenced_amid_its_records_says_so(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        old = cluster.writer(topic.topic)

        def fenced(_: int) -> Iterator[Outgoing]:
            yield record(topic, b"a")
            delivered(old)
            cluster.writer(topic.topic)
            yield record(topic, b"b")
            delivered(old)
            yield record(topic, b"c")

        with pytest.raises(FencedError):
            old.write(Records(fenced))
        assert cluster.read(topic) == []

    def test_a_writer_that_is_fenced_before_its_check_has_no_effect(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        old = cluster.writer(topic.topic)

        def pause() -> None:
            cluster.writer(topic.topic)

        with pytest.raises(FencedError):
            old.write([record(topic, b"a")], check=pause)
        assert cluster.read(topic) == []

    def test_writers_of_other_ids_are_not_fenced(self, cluster: Cluster) -> None:
        topic = cluster.topic()
        one, other = cluster.writer(f"{topic.topic}/1"), cluster.writer(f"{topic.topic}/2")
        one.write([record(topic, b"a")])
        other.write([record(topic, b"b")])
        one.write([record(topic, b"c")])
        assert cluster.read(topic) == [(b"a", b"v"), (b"b", b"v"), (b"c", b"v")]

    @pytest.mark.parametrize("size", [3_000, 2_000_000])
    def test_a_record_that_is_too_large_for_topic_or_producer_leaves_the_writer_usable(
        self, cluster: Cluster, size: int
    ) -> None:
        topic = cluster.topic(max_message_bytes="2000")
        writer = cluster.writer(topic.topic)
        with cluster.group(f"group-{topic.topic}") as reader:
            with pytest.raises(TooLargeError, match=r"failed: .*too large"):
                writer.write([record(topic, b"a"), record(topic, b"b", b"x" * size)])
            writer.write([record(topic, b"c")], Consumed(reader, topic, 1))
            assert committed_offset(installed(cluster.settings).kafka, reader, topic) == 1
        assert cluster.read(topic) == [(b"c", b"v")]

    def test_a_record_that_is_too_large_is_told_also_when_others_come_after_its_refusal(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.topic(max_message_bytes="2000")
        writer = cluster.writer(topic.topic)

        def refused(_: int) -> Iterator[Outgoing]:
            yield record(topic, b"a", b"x" * 3_000)
            delivered(writer)
            yield record(topic, b"b")

        with pytest.raises(TooLargeError):
            writer.write(Records(refused))
        with cluster.group(f"group-{topic.topic}") as reader:
            with pytest.raises(TooLargeError):
                writer.write(Records(lambda _: islice(refused(0), 1)), Consumed(reader, topic, 1))
            assert committed_offset(installed(cluster.settings).kafka, reader, topic) is None
        writer.write([record(topic, b"c")])
        assert cluster.read(topic) == [(b"c", b"v")]

    def test_an_aborted_transaction_is_retried_with_its_records_again(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.topic()
        lost = TopicPartition(topic.topic, 99)
        records = Records(lambda n: iter([record(topic if n > 1 else lost, b"a")]))
        cluster.writer(topic.topic).write(records)
        assert records.count == 2
        assert cluster.read(topic) == [(b"a", b"v")]

    def test_a_partition_that_the_client_did_not_know_is_tried_again(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.topic()
        unknown = TopicPartition(topic.topic, 99)
        writer = cluster.writer(topic.topic)
        writer.write([record(topic, b"before")])
        records = Records(lambda n: iter([record(topic if n > 1 else unknown, b"a")]))
        writer.write(records)
        assert records.count == 2
        assert cluster.read(topic) == [(b"before", b"v"), (b"a", b"v")]

    def test_without_kafka_nothing_is_opened(self, cluster: Cluster, nowhere: str) -> None:
        settings = cluster.impatient.model_copy(update={"bootstrap_servers": nowhere})
        writer = Transactions(
            installed(settings).kafka,
            "id",
            may_write=anyone,
            fenced="fenced",
            failed="failed: {reason}",
        )
        with pytest.raises(KafkaUnreachableError, match=f"Kafka at {nowhere} cannot be reached"):
            writer.open()
        with pytest.raises(TransactionError, match="cannot be reached"):
            writer.write([Outgoing("topic", b"a", b"v", [])])
        assert not topic_metadata.is_reachable(installed(settings).kafka, 1)


class PlacementContract:
    """Where records go."""

    def test_a_key_goes_where_partition_of_says(self, cluster: Cluster) -> None:
        topic = cluster.topic(7)
        keys = [f"client{n}".encode() for n in range(50)] + [b"", b"\xff\xfe", "größe".encode()]
        producer = installed(cluster.settings).kafka.producer()
        for key in keys:
            producer.produce(topic.topic, b"v", key)
        assert producer.flush(20) == 0
        cluster.writer(topic.topic).write([Outgoing(topic.topic, key, b"w", []) for key in keys])
        for number in range(7):
            found = cluster.read(TopicPartition(topic.topic, number))
            expected = [key for key in keys if partition_of(key, 7) == number]
            assert [key for key, value in found if value == b"v"] == expected
            assert [key for key, value in found if value == b"w"] == expected

    def test_a_plain_producer_is_told_what_became_of_each_record(self, cluster: Cluster) -> None:
        topic = cluster.topic(max_message_bytes="2000")
        told: list[tuple[str | None, int | None]] = []
        producer = installed(cluster.settings).kafka.producer()
        for value in (b"v", b"x" * 3_000):
            producer.produce(
                topic.topic,
                value,
                partition=0,
                on_delivery=lambda error, message: told.append(
                    (error.name() if error else None, message.offset())
                ),
            )
            assert producer.flush(20) == 0
        assert told[0] == (None, 0)
        assert told[1][0] == "MSG_SIZE_TOO_LARGE"
