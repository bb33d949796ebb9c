"""`topics apply` on the real broker."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import pytest
from confluent_kafka.cimpl import NewTopic

from shardpost.errors import ShardpostError
from shardpost.kafka.clients import admin, transactional_producer
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import partition_counts
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.reading import read_to_end
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.topics.declared import DECLARED, STARTER_COUNTRIES


def exchanges_of(settings: Settings) -> list[tuple[str, str, int]]:
    """Return (key, country, partition) of every record of `exchanges`, sorted."""
    return sorted(
        (
            (message.key() or b"").decode(),
            json.loads(message.value() or b"")["Country"],
            message.partition() or 0,
        )
        for partition in range(
            partition_counts(settings, [settings.topic("exchanges")]).popitem()[1]
        )
        for message in read_to_end(settings, TopicPartition(settings.topic("exchanges"), partition))
    )


def starter_list(partitions: int) -> list[tuple[str, str, int]]:
    return sorted((c, to, partition_of(c, partitions)) for c, to in STARTER_COUNTRIES.items())


def create(settings: Settings, topic: str, partitions: int) -> None:
    client = admin(settings)
    client.create_topics([NewTopic(topic, partitions, 1)])[topic].result()


def test_all_declared_topics_are_created_and_exchanges_has_its_starter_list(
    settings: Settings,
) -> None:
    applied = apply_topics(settings)
    assert [asdict(one) for one in applied] == [
        {
            "topic": settings.topic(spec.name),
            "partitions": 4,
            "created": True,
            "starter": 13 if spec.name == "exchanges" else 0,
        }
        for spec in DECLARED
    ]
    assert exchanges_of(settings) == starter_list(4)


def test_a_second_time_nothing_is_done(settings: Settings) -> None:
    apply_topics(settings)
    again = apply_topics(settings)
    assert [(one.created, one.starter) for one in again] == [(False, 0)] * len(DECLARED)
    assert exchanges_of(settings) == starter_list(4)


def test_two_at_once_create_each_topic_once_and_give_one_starter_list(settings: Settings) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(apply_topics, [settings, settings]))
    for spec, pair in zip(DECLARED, zip(*both, strict=True), strict=True):
        assert sum(one.created for one in pair) == 1, spec.name
    assert exchanges_of(settings) == starter_list(4)


def test_share_holders_gets_as_many_partitions_as_positions_has(settings: Settings) -> None:
    create(settings, settings.topic("positions"), 6)
    applied = {one.topic: one for one in apply_topics(settings)}
    assert applied[settings.topic("positions")].created is False
    assert applied[settings.topic("share-holders")].partitions == 6
    assert applied[settings.topic("clients")].partitions == 4


def test_an_exchanges_topic_with_one_record_is_left_alone(settings: Settings) -> None:
    create(settings, settings.topic("exchanges"), 2)
    producer = transactional_producer(settings, f"test-{settings.topic('exchanges')}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(settings.topic("exchanges"), b'{"Exchange":"XETRA","Country":"DE"}', b"XETRA")
    producer.commit_transaction()
    apply_topics(settings)
    assert exchanges_of(settings) == [("XETRA", "DE", partition_of("XETRA", 2))]


def test_a_starter_list_broken_off_before_or_in_its_transaction_is_given_whole(
    settings: Settings,
) -> None:
    create(settings, settings.topic("exchanges"), 4)
    killed = transactional_producer(settings, f"starter/{settings.topic('exchanges')}")
    killed.init_transactions()
    killed.begin_transaction()
    killed.produce(settings.topic("exchanges"), b'{"Exchange":"LON","Country":"GB"}', b"LON")
    killed.flush()
    applied = {one.topic: one for one in apply_topics(settings)}
    assert applied[settings.topic("exchanges")].starter == len(STARTER_COUNTRIES)
    assert exchanges_of(settings) == starter_list(4)


def test_more_replicas_than_brokers_is_one_clear_error(settings: Settings) -> None:
    wanted = settings.model_copy(update={"replication_factor": 3})
    with pytest.raises(ShardpostError, match=r"cannot be created.*3"):
        apply_topics(wanted)
