"""`shardpost.letters` in the hands of a plain confluent-kafka consumer."""

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from shardpost.kafka.topic_metadata import partition_leaders
from shardpost.letters import Letter, Malformed, is_exhausted, make_letter, read_letter
from shardpost.settings import Settings
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.kafka_configs import configure_topic
from tests.support.letter_world import (
    START,
    at,
    committed,
    live,
    ready_for_letters,
    sweep,
    total,
)

MAX_BYTES = 6_000_000  # more than Kafka's default limit


@pytest.fixture
def ready(settings: Settings) -> Settings:
    return ready_for_letters(settings, partitions=1)


def first(settings: Settings, topic: str) -> Message:
    """Return the first message, as any consumer gets it."""
    config = {
        "bootstrap.servers": settings.bootstrap,
        "group.id": "plain",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "fetch.message.max.bytes": MAX_BYTES,
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    return message


def produce(settings: Settings, **record: object) -> None:
    config = {"bootstrap.servers": settings.bootstrap, "message.max.bytes": 7_000_000}
    producer = Producer(config)
    producer.produce(**record)  # type: ignore[arg-type]
    assert producer.flush(20) == 0


def test_from_a_failure_over_a_retry_to_the_same_letter(ready: Settings) -> None:
    store, retries = ready.topic("dead-letters"), ready.topic("retries")
    more: dict[str, Any] = {"partitions": 1, "topic": store, "retry_topics": [retries]}
    produce(ready, topic=ready.topic("clients"), key=b"k", value=b"v", headers=[("a", b"b")])
    letter = make_letter(
        first(ready, ready.topic("clients")), KeyError("x"), failed_at=START, **more
    )
    produce(ready, **letter)
    read = read_letter(first(ready, store))
    assert isinstance(read, Letter)
    at_ms = first(ready, ready.topic("clients")).timestamp()[1]
    assert (read.id, read.attempt) == (f"{ready.topic('clients')}-0-0@{at_ms}", 0)
    assert total(sweep(ready, at(60))) == {"retried": 1}
    retry = first(ready, retries)
    assert (retry.key(), retry.value()) == (b"k", b"v")
    again = make_letter(retry, KeyError("x"), failed_at=at(61), **more)
    assert again["key"].decode() == read.id
    assert dict(again["headers"])["attempt"] == b"1"
    assert [is_exhausted(retry, attempts) for attempts in (0, 1, 2)] == [True, True, False]
    # The same message from a topic that is none of retries is a failure of its own.
    fresh = make_letter(retry, "E", failed_at=at(61), partitions=1, retry_topics=["other"])
    assert fresh["key"] == f"{retries}-0-0@{retry.timestamp()[1]}".encode()


def test_a_failure_in_a_recreated_topic_is_not_dropped_as_one_of_the_old(ready: Settings) -> None:
    origin, store = ready.topic("clients"), ready.topic("dead-letters")
    more: dict[str, Any] = {"partitions": 1, "topic": store, "failed_at": START}
    ids = []
    for value in (b"old", b"new"):
        produce(ready, topic=origin, key=b"k", value=value)
        letter = make_letter(first(ready, origin), "E: x", **more)
        assert make_letter(first(ready, origin), "E: y", **more)["key"] == letter["key"]
        produce(ready, **letter)
        assert total(sweep(ready, at(60))) == {"retried": 1}
        produce(ready, **letter)  # reported again
        assert total(sweep(ready, at(60))) == {"dropped": 1}
        ids.append(letter["key"])
        client = installed(ready).kafka.admin()
        client.delete_topics([origin])[origin].result(30)
        wait_for(lambda: not partition_leaders(installed(ready).kafka, [origin]), "the topic's end")
        client.create_topics([NewTopic(origin, 1, 1)])[origin].result(30)
    assert ids[0] != ids[1]
    assert [retry.value for retry in committed(ready, ready.topic("retries"))] == [b"old", b"new"]


def test_what_is_no_letter_says_why(ready: Settings) -> None:
    produce(ready, topic=ready.topic("dead-letters"), key=b"k", value=b"v")
    read = read_letter(first(ready, ready.topic("dead-letters")))
    assert read == Malformed("expected a header letter-id, found none")
    assert not is_exhausted(first(ready, ready.topic("dead-letters")), 1)


def test_wrong_arguments_and_errors_of_the_client_are_refused(ready: Settings) -> None:
    gone = first(ready, ready.topic("clients"))
    error = gone.error()
    assert error
    assert error.code() == KafkaError._PARTITION_EOF
    with pytest.raises(ValueError, match="expected a record"):
        make_letter(gone, "E: x", partitions=1, failed_at=START)
    produce(ready, topic=ready.topic("clients"), key=b"k", value=b"v")
    message = first(ready, ready.topic("clients"))
    with pytest.raises(ValueError, match="expected the number of partitions"):
        make_letter(message, "E: x", partitions=0, failed_at=START)
    with pytest.raises(ValueError, match="expected failed_at with its zone"):
        make_letter(message, "E: x", partitions=1, failed_at=START.replace(tzinfo=None))


def test_where_the_limits_of_topics_are_raised_larger_letters_are_retried_and_parked(
    ready: Settings,
) -> None:
    once = ready.model_copy(update={"retry_attempts": 1})
    store, retries = ready.topic("dead-letters"), ready.topic("retries")
    for topic in (ready.topic("clients"), store, retries):
        configure_topic(ready, topic, {"max.message.bytes": str(MAX_BYTES)})
    configure_topic(
        ready, ready.topic("parking-lot"), {"max.message.bytes": str(MAX_BYTES + 65_536)}
    )
    value = b"v" * 5_000_000
    produce(ready, topic=ready.topic("clients"), key=b"k", value=value)
    for failing, outcome in ((ready.topic("clients"), "retried"), (retries, "parked")):
        letter = make_letter(
            first(ready, failing),
            "E: x",
            partitions=1,
            failed_at=START,
            topic=store,
            retry_topics=[retries],
            max_bytes=MAX_BYTES,
        )
        produce(ready, **letter)
        assert total(sweep(once, at(10**9))) == {outcome: 1}
    [parked] = live(ready, ready.topic("parking-lot")).values()
    assert parked.value == value
