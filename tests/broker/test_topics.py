"""`topics apply` on the real broker."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.cimpl import NewTopic

from shardpost.errors import ShardpostError
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import TopicPartition, partition_of
from shardpost.kafka.topic_metadata import partition_counts, topic_configs
from shardpost.settings import Settings
from shardpost.topics.creation import AppliedTopic, apply_topics
from shardpost.topics.declared import DECLARED, STARTER_COUNTRIES
from tests.support.installed import installed
from tests.support.kafka_configs import configure_topic, wait_until_shown
from tests.support.transactions import begun_transaction


def exchanges_of(settings: Settings) -> list[tuple[str, str, int]]:
    """Return (key, country, partition) of every record of `exchanges`, sorted."""
    return sorted(
        (
            (message.key() or b"").decode(),
            json.loads(message.value() or b"")["Country"],
            message.partition() or 0,
        )
        for partition in range(
            partition_counts(installed(settings).kafka, [settings.topic("exchanges")]).popitem()[1]
        )
        for message in read_to_end(
            installed(settings).kafka, TopicPartition(settings.topic("exchanges"), partition)
        )
    )


def starter_list(partitions: int) -> list[tuple[str, str, int]]:
    return sorted((c, to, partition_of(c, partitions)) for c, to in STARTER_COUNTRIES.items())


def create(settings: Settings, topic: str, partitions: int, **config: str) -> None:
    client = installed(settings).kafka.admin()
    dotted = {name.replace("_", "."): value for name, value in config.items()}
    client.create_topics([NewTopic(topic, partitions, 1, config=dotted)])[topic].result()
    wait_until_shown(settings, topic, partitions)


def declaring(settings: Settings, text: str) -> Settings:
    """Return settings with that file of topics."""
    file = settings.home / "topics.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return settings.model_copy(update={"topics_file": file})


def news(applied: list[AppliedTopic]) -> list[str]:
    """Return what was done, or left alone, as text."""
    lines = [line for one in applied for line in one.as_text().splitlines()]
    return [line for line in lines if not line.endswith(": exists")]


def config_of(settings: Settings, topic: str) -> dict[str, str | None]:
    return dict(topic_configs(installed(settings).kafka, [topic])[topic])


def test_all_declared_topics_are_created_and_exchanges_has_its_starter_list(
    settings: Settings,
) -> None:
    applied = apply_topics(installed(settings))
    assert [one.as_json() for one in applied] == [
        {
            "topic": settings.topic(spec.name),
            "partitions": 4,
            "created": True,
            "starter": 13 if spec.name == "exchanges" else 0,
            "changed": [],
            "refused": [],
        }
        for spec in DECLARED
    ]
    assert exchanges_of(settings) == starter_list(4)


def test_two_at_once_create_each_topic_once_and_give_one_starter_list(settings: Settings) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(apply_topics, [installed(settings)] * 2))
    for spec, pair in zip(DECLARED, zip(*both, strict=True), strict=True):
        assert sum(one.created for one in pair) == 1, spec.name
    assert exchanges_of(settings) == starter_list(4)


def test_share_holders_gets_as_many_partitions_as_positions_has(settings: Settings) -> None:
    create(settings, settings.topic("positions"), 6)
    applied = {one.plan.topic: one for one in apply_topics(installed(settings))}
    assert applied[settings.topic("positions")].created is False
    assert applied[settings.topic("share-holders")].plan.partitions == 6
    assert applied[settings.topic("clients")].plan.partitions == 4


def test_an_exchanges_topic_with_one_record_is_left_alone(settings: Settings) -> None:
    create(settings, settings.topic("exchanges"), 2)
    producer = begun_transaction(settings, f"test-{settings.topic('exchanges')}")
    producer.produce(settings.topic("exchanges"), b'{"Exchange":"XETRA","Country":"DE"}', b"XETRA")
    producer.commit_transaction()
    apply_topics(installed(settings))
    assert exchanges_of(settings) == [("XETRA", "DE", partition_of("XETRA", 2))]


def test_a_starter_list_broken_off_before_or_in_its_transaction_is_given_whole(
    settings: Settings,
) -> None:
    create(settings, settings.topic("exchanges"), 4)
    killed = begun_transaction(settings, f"starter/{settings.topic('exchanges')}")
    killed.produce(settings.topic("exchanges"), b'{"Exchange":"LON","Country":"GB"}', b"LON")
    killed.flush()
    applied = {one.plan.topic: one for one in apply_topics(installed(settings))}
    assert applied[settings.topic("exchanges")].starter == len(STARTER_COUNTRIES)
    assert exchanges_of(settings) == starter_list(4)


def test_more_replicas_than_brokers_is_one_clear_error(settings: Settings) -> None:
    wanted = settings.model_copy(update={"replication_factor": 3})
    with pytest.raises(ShardpostError, match=r"cannot be created.*3"):
        apply_topics(installed(wanted))


def test_what_can_lose_nothing_is_repaired_and_shown_as_it_is_now(settings: Settings) -> None:
    apply_topics(installed(settings))
    store, retries = settings.topic("weekly-emails"), settings.topic("retries")
    configure_topic(settings, store, {"cleanup.policy": "compact,delete", "segment.ms": "1000"})
    configure_topic(settings, retries, {"retention.ms": "1000", "max.message.bytes": "9000000"})
    assert news(apply_topics(installed(settings))) == [
        "  changed: cleanup.policy compact,delete -> compact",
        "  changed: retention.ms 1000 -> 604800000",
    ]
    assert config_of(settings, store)["cleanup.policy"] == "compact"
    assert config_of(settings, store)["segment.ms"] == "1000"  # nothing is declared of it
    assert config_of(settings, retries)["retention.ms"] == "604800000"
    assert config_of(settings, retries)["max.message.bytes"] == "9000000"  # more than declared
    assert news(apply_topics(installed(settings))) == []


def test_a_dry_run_says_the_same_and_changes_nothing(settings: Settings) -> None:
    own = declaring(settings, "topics: {run-requests: {partitions: 2}}")
    planned = news(apply_topics(installed(own), dry_run=True))
    assert f"topic {own.topic('run-commands')}: would be created with 2 partitions" in planned
    assert own.topic("positions") not in installed(own).kafka.admin().list_topics(timeout=20).topics
    apply_topics(installed(own))
    retries = own.topic("retries")
    configure_topic(own, retries, {"retention.ms": "1000"})
    before = config_of(own, retries)
    assert news(apply_topics(installed(own), dry_run=True)) == [
        "  would change: retention.ms 1000 -> 604800000",
    ]
    assert config_of(own, retries) == before


def test_what_may_lose_records_is_left_alone_with_its_reason_and_command(
    settings: Settings,
) -> None:
    clients, requests = settings.topic("clients"), settings.topic("run-requests")
    create(settings, clients, 2, cleanup_policy="delete")
    create(settings, requests, 2, cleanup_policy="compact")
    own = declaring(settings, "topics: {clients: {partitions: 8, replication_factor: 2}}")
    said = {one.plan.topic: one.as_text() for one in apply_topics(installed(own))}
    for what in ("cleanup.policy is delete, expected compact", "partitions is 2, expected 8"):
        assert f"not changed: {what}" in said[clients]
    assert f"--entity-name {clients} --add-config cleanup.policy=compact`" in said[clients]
    assert "not changed: replication.factor is 1, expected 2" in said[clients]
    assert "kafka-reassign-partitions.sh" in said[clients]
    assert "not changed: cleanup.policy is compact, expected delete" in said[requests]
    assert config_of(own, clients)["cleanup.policy"] == "delete"
    assert config_of(own, requests)["cleanup.policy"] == "compact"
    assert partition_counts(installed(own).kafka, [clients]) == {clients: 2}


def test_partitions_are_added_only_to_a_topic_whose_keys_do_not_matter(settings: Settings) -> None:
    free, keyed = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("free", "keyed"))
    text = "own_topics: {{{0}: {{partitions: {2}, keyed: false}}, {1}: {{partitions: {2}}}}}"
    apply_topics(installed(declaring(settings, text.format(free, keyed, 2))))
    own = declaring(settings, text.format(free, keyed, 3))
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(apply_topics, [installed(own)] * 2))
    assert partition_counts(installed(own).kafka, [free, keyed]) == {free: 3, keyed: 2}
    for applied in both:
        said = {one.plan.topic: one.as_text() for one in applied}
        assert "the records of a key would be in two partitions" in said[keyed]


def test_two_at_once_repair_the_same_and_both_end_well(settings: Settings) -> None:
    apply_topics(installed(settings))
    parked = settings.topic("parking-lot")
    configure_topic(settings, parked, {"cleanup.policy": "delete", "max.message.bytes": "1000"})
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(apply_topics, [installed(settings)] * 2))
    assert config_of(settings, parked)["cleanup.policy"] == "compact"
    assert config_of(settings, parked)["max.message.bytes"] == str((2 << 20) + (64 << 10))


def test_another_cluster_than_that_of_the_file_is_refused_before_anything_is_done(
    settings: Settings,
) -> None:
    found = installed(settings).kafka.admin().list_topics(timeout=20).cluster_id
    for dry_run in (True, False):
        with pytest.raises(ShardpostError, match=f"expected the cluster another.* found {found}"):
            apply_topics(installed(declaring(settings, "cluster_id: another")), dry_run=dry_run)
    assert (
        settings.topic("positions")
        not in installed(settings).kafka.admin().list_topics(timeout=20).topics
    )
    apply_topics(installed(declaring(settings, f"cluster_id: {found}")))
