"""`topics apply` on the real broker."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import pytest
from confluent_kafka.admin import NewTopic

from shardpost.adapters import topics
from shardpost.adapters.kafka import admin, partition_counts, read_to_end, transactional_producer
from shardpost.domain.partitioning import partition_of
from shardpost.domain.topics import DECLARED, STARTER_COUNTRIES
from shardpost.errors import ShardpostError
from shardpost.settings import Settings


def exchanges_of(settings: Settings) -> list[tuple[str, str, int]]:
    """Return (key, country, partition) of every record of `exchanges`, sorted."""
    return sorted(
        (message.key().decode(), json.loads(message.value())["Country"], message.partition())
        for partition in range(partition_counts(settings, [settings.topic_exchanges]).popitem()[1])
        for message in read_to_end(settings, settings.topic_exchanges, partition)
    )


def starter_list(partitions: int) -> list[tuple[str, str, int]]:
    return sorted((c, to, partition_of(c, partitions)) for c, to in STARTER_COUNTRIES.items())


def create(settings: Settings, topic: str, partitions: int) -> None:
    client = admin(settings)
    client.create_topics([NewTopic(topic, partitions, 1)])[topic].result()


def test_all_declared_topics_are_created_and_exchanges_has_its_starter_list(
    settings: Settings,
) -> None:
    applied = topics.apply(settings)
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
    topics.apply(settings)
    again = topics.apply(settings)
    assert [(one.created, one.starter) for one in again] == [(False, 0)] * len(DECLARED)
    assert exchanges_of(settings) == starter_list(4)


def test_two_at_once_create_each_topic_once_and_give_one_starter_list(settings: Settings) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(topics.apply, [settings, settings]))
    for spec, pair in zip(DECLARED, zip(*both, strict=True), strict=True):
        assert sum(one.created for one in pair) == 1, spec.name
    assert exchanges_of(settings) == starter_list(4)


def test_share_holders_gets_as_many_partitions_as_positions_has(settings: Settings) -> None:
    create(settings, settings.topic_positions, 6)
    applied = {one.topic: one for one in topics.apply(settings)}
    assert applied[settings.topic_positions].created is False
    assert applied[settings.topic_share_holders].partitions == 6
    assert applied[settings.topic_clients].partitions == 4


def test_an_exchanges_topic_with_one_record_is_left_alone(settings: Settings) -> None:
    create(settings, settings.topic_exchanges, 2)
    producer = transactional_producer(settings, f"test-{settings.topic_exchanges}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(settings.topic_exchanges, b'{"Exchange":"XETRA","Country":"DE"}', b"XETRA")
    producer.commit_transaction()
    topics.apply(settings)
    assert exchanges_of(settings) == [("XETRA", "DE", partition_of("XETRA", 2))]


def test_a_starter_list_broken_off_before_or_in_its_transaction_is_given_whole(
    settings: Settings,
) -> None:
    create(settings, settings.topic_exchanges, 4)
    killed = transactional_producer(settings, f"starter/{settings.topic_exchanges}")
    killed.init_transactions()
    killed.begin_transaction()
    killed.produce(settings.topic_exchanges, b'{"Exchange":"LON","Country":"GB"}', b"LON")
    killed.flush()
    applied = {one.topic: one for one in topics.apply(settings)}
    assert applied[settings.topic_exchanges].starter == len(STARTER_COUNTRIES)
    assert exchanges_of(settings) == starter_list(4)


def test_more_replicas_than_brokers_is_one_clear_error(settings: Settings) -> None:
    wanted = settings.model_copy(update={"replication_factor": 3})
    with pytest.raises(ShardpostError, match=r"cannot be created.*3"):
        topics.apply(wanted)
