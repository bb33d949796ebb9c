"""Taking in foreign letters from topics that come, go, and lose records: Kafka in memory."""

import confluent_kafka
import pytest
from confluent_kafka.cimpl import NewTopic

from shardpost.dead_letters.foreign_intake import GROUP, take_in
from shardpost.dead_letters.letter_topics import routes_of
from shardpost.dead_letters.sweep_job import (
    CUT_OFF,
    GONE,
    RECREATED,
    TOO_LARGE,
    Gap,
    Intake,
    next_offset,
)
from shardpost.kafka import offsets
from shardpost.kafka.records import TopicPartition
from shardpost.kafka.topic_metadata import topic_ids
from tests.support.installed import installed
from tests.support.letter_world import START
from tests.support.memory_kafka import MemoryKafka
from tests.support.transactions import begun_transaction

DLT = TopicPartition("orders.DLT", 0)
KAFKA = {"partitions": 1, "kafka_timeout": 1, "foreign_dead_letters": f"{DLT.topic},connect-dlq"}


def create(kafka: MemoryKafka, topic: str = DLT.topic, partitions: int = 1) -> None:
    large = {"max.message.bytes": "9000000"}
    new = NewTopic(topic, partitions, 1, config=large)
    installed(kafka.settings).kafka.admin().create_topics([new])[topic].result()


def recreate(kafka: MemoryKafka) -> None:
    """Delete the topic and create it anew; what was committed is there as before."""
    offset, topic_id = committed(kafka)
    installed(kafka.settings).kafka.admin().delete_topics([DLT.topic])[DLT.topic].result()
    create(kafka)
    commit(kafka, offset or 0, topic_id)


def put(kafka: MemoryKafka, *values: bytes, to: TopicPartition = DLT) -> None:
    producer = begun_transaction(kafka.settings, "others", **{"message.max.bytes": 9_000_000})
    for value in values:
        producer.produce(to.topic, value, b"k", to.partition)
    producer.commit_transaction()  # its marker has an offset too


def taken(kafka: MemoryKafka) -> Intake:
    return take_in(installed(kafka.settings), routes_of(installed(kafka.settings)), START)


def stored(kafka: MemoryKafka) -> list[bytes | None]:
    return [one.value for one in kafka.committed(TopicPartition("dead-letters", 0))]


def committed(kafka: MemoryKafka) -> tuple[int | None, str | None]:
    reader = installed(kafka.settings).kafka.consumer(GROUP)
    found = offsets.committed_offsets(installed(kafka.settings).kafka, reader, [DLT]).get(DLT)
    return found or (None, None)


def commit(kafka: MemoryKafka, offset: int, topic_id: str | None = None) -> None:
    """Commit with the id of a topic or, as was done before, without."""
    metadata = () if topic_id is None else (topic_id,)
    reader = installed(kafka.settings).kafka.consumer(GROUP)
    found = confluent_kafka.TopicPartition(*DLT, offset, *metadata)
    reader.commit(offsets=[found], asynchronous=False)


def test_a_topic_that_is_not_there_yet_stops_nothing_and_is_no_news(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert taken(kafka) == Intake()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", f"{name}: the topic does not exist (yet): nothing is taken in from it")
        for name in ("connect-dlq", "orders.DLT")
    ]
    create(kafka)
    put(kafka, b"1")
    assert taken(kafka) == Intake(1)


def test_a_partition_without_a_leader_is_named_and_stops_no_other(kafka: MemoryKafka) -> None:
    create(kafka, partitions=2)
    create(kafka, "connect-dlq")
    for to in (DLT, TopicPartition(DLT.topic, 1), TopicPartition("connect-dlq", 0)):
        put(kafka, str(to).encode(), to=to)
    kafka.broker.log(DLT).has_leader = False
    assert taken(kafka) == Intake(2, (), ("orders.DLT[0]: it has no leader",))
    assert stored(kafka) == [b"connect-dlq[0]", b"orders.DLT[1]"]
    kafka.broker.log(DLT).has_leader = True
    assert taken(kafka) == Intake(1)


def test_a_partition_that_does_not_answer_is_named_and_stops_no_other(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(kafka, "connect-dlq")
    create(kafka)
    put(kafka, b"1")
    put(kafka, b"2", to=TopicPartition("connect-dlq", 0))
    kafka.broker.topics["connect-dlq"].logs.clear()  # the metadata are older than that
    monkeypatch.setattr(
        "shardpost.dead_letters.foreign_intake.partition_leaders",
        lambda *_: {"connect-dlq": {0: True}, DLT.topic: {0: True}},
    )
    found = taken(kafka)
    assert (found.taken_in, found.gaps) == (1, ())
    assert [one.split(":")[0] for one in found.not_read] == ["connect-dlq[0]"]


def test_each_letter_is_taken_in_once_and_nothing_is_missing(kafka: MemoryKafka) -> None:
    create(kafka)
    for values in ((b"1", b"2"), (), (b"3",)):
        put(kafka, *values)
        assert taken(kafka) == Intake(len(values))
        assert taken(kafka) == Intake()
    assert stored(kafka) == [b"1", b"2", b"3"]


def test_what_kafka_deleted_unread_is_a_gap_that_is_reported_once(kafka: MemoryKafka) -> None:
    create(kafka)
    put(kafka, b"0", b"1", b"2")
    assert taken(kafka) == Intake(3)
    put(kafka, b"4", b"5", b"6", b"7")
    kafka.broker.log(DLT).delete_before(6)
    assert taken(kafka) == Intake(2, (Gap(DLT, 4, 5, GONE),))
    assert taken(kafka) == Intake()
    assert stored(kafka) == [b"0", b"1", b"2", b"6", b"7"]


def test_a_topic_that_was_emptied_unread_is_a_gap_too(kafka: MemoryKafka) -> None:
    create(kafka)
    put(kafka, b"0")
    assert taken(kafka) == Intake(1)
    put(kafka, b"2", b"3")
    kafka.broker.log(DLT).delete_before(5)
    assert taken(kafka) == Intake(0, (Gap(DLT, 2, 4, GONE),))
    assert taken(kafka) == Intake()


def test_what_kafka_deleted_after_it_was_read_is_no_gap(kafka: MemoryKafka) -> None:
    create(kafka)
    put(kafka, b"0", b"1")
    assert taken(kafka) == Intake(2)
    kafka.broker.log(DLT).delete_before(3)  # with the marker of their transaction
    assert taken(kafka) == Intake()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_recreated_topic_is_read_from_its_start_however_long_it_is(
    kafka: MemoryKafka, count: int
) -> None:
    create(kafka)
    put(kafka, b"old", b"old")
    assert taken(kafka) == Intake(2)
    recreate(kafka)
    put(kafka, *[b"new"] * count)
    assert taken(kafka) == Intake(count, (Gap(DLT, 3, None, RECREATED),))
    assert taken(kafka) == Intake()
    assert stored(kafka) == [b"old", b"old", *[b"new"] * count]


def test_a_recreated_topic_whose_offset_kafka_has_forgotten_is_read_from_its_start(
    kafka: MemoryKafka,
) -> None:
    create(kafka)
    put(kafka, b"old", b"old")
    assert taken(kafka) == Intake(2)
    installed(kafka.settings).kafka.admin().delete_topics([DLT.topic])[DLT.topic].result()
    assert taken(kafka) == Intake()
    create(kafka)
    put(kafka, b"new")
    assert taken(kafka) == Intake(1)


def test_of_a_recreated_topic_what_was_deleted_again_is_missing_too(kafka: MemoryKafka) -> None:
    create(kafka)
    put(kafka, b"old")
    assert taken(kafka) == Intake(1)
    recreate(kafka)
    put(kafka, b"0", b"1", b"2")
    kafka.broker.log(DLT).delete_before(2)
    gaps = (Gap(DLT, 2, None, RECREATED), Gap(DLT, 0, 1, GONE))
    assert taken(kafka) == Intake(1, gaps)


def test_an_offset_that_was_committed_without_an_id_is_gone_on_from(kafka: MemoryKafka) -> None:
    create(kafka)
    put(kafka, b"0", b"1", b"2")
    commit(kafka, 2)
    assert taken(kafka) == Intake(1)
    assert committed(kafka) == (
        4,
        topic_ids(installed(kafka.settings).kafka, [DLT.topic])[DLT.topic],
    )


def test_with_an_id_or_on_a_broker_without_ids_a_single_deleted_offset_is_a_gap() -> None:
    for topic_id in ("id", None):
        found = next_offset(DLT, (2, topic_id), topic_id, (3, 3))
        assert found == (3, [Gap(DLT, 2, 2, GONE)])


def test_an_offset_beyond_the_end_is_of_a_topic_that_was_cut_off(kafka: MemoryKafka) -> None:
    create(kafka)
    put(kafka, b"0", b"1", b"2")
    commit(kafka, 9)
    assert taken(kafka) == Intake(3, (Gap(DLT, 4, 8, CUT_OFF),))
    assert taken(kafka) == Intake()


def test_without_a_committed_offset_all_that_is_there_is_read(kafka: MemoryKafka) -> None:
    create(kafka)
    put(kafka, b"0", b"1", b"2")
    kafka.broker.log(DLT).delete_before(1)
    assert taken(kafka) == Intake(2)


def test_what_is_too_large_for_a_letter_is_missing_as_well(kafka: MemoryKafka) -> None:
    create(kafka)
    put(kafka, b"0", b"x" * 4_000_000, b"2")
    assert taken(kafka) == Intake(2, (Gap(DLT, 1, 1, TOO_LARGE),))
    assert taken(kafka) == Intake()
    assert stored(kafka) == [b"0", b"2"]
