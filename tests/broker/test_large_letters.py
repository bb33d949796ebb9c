"""Letters of records that are larger than Kafka's default limit, where topics accept them."""

import pytest
from confluent_kafka import Message, Producer

from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.reading import read_to_end
from shardpost.letters import make_letter
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.kafka_configs import configure_topic
from tests.support.letter_world import START, at, live, sweep, total

MAX_BYTES = 6_000_000


@pytest.fixture
def ready(settings: Settings) -> Settings:
    update = {"partitions": 1, "retry_jitter": 0.0, "retry_attempts": 1}
    made = settings.model_copy(update=update)
    apply_topics(made)
    for topic in (made.topic_clients, made.topic_dead_letters, made.topic_retries):
        configure_topic(made, topic, {"max.message.bytes": str(MAX_BYTES)})
    configure_topic(made, made.topic_parking_lot, {"max.message.bytes": str(MAX_BYTES + 65_536)})
    return made


def first(settings: Settings, topic: str) -> Message:
    return next(iter(read_to_end(settings, TopicPartition(topic, 0))))


def produce(settings: Settings, **record: object) -> None:
    config = {"bootstrap.servers": settings.bootstrap, "message.max.bytes": 7_000_000}
    producer = Producer(config)
    producer.produce(**record)  # type: ignore[arg-type]
    assert producer.flush(20) == 0


def test_where_the_limits_of_topics_are_raised_larger_letters_are_retried_and_parked(
    ready: Settings,
) -> None:
    store, retries = ready.topic_dead_letters, ready.topic_retries
    value = b"v" * 5_000_000
    produce(ready, topic=ready.topic_clients, key=b"k", value=value)
    for failing, outcome in ((ready.topic_clients, "retried"), (retries, "parked")):
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
        assert total(sweep(ready, at(10**9))) == {outcome: 1}
    [parked] = live(ready, ready.topic_parking_lot).values()
    assert parked.value == value
