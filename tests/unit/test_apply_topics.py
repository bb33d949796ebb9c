"""`topics apply` as a command, and where Kafka refuses a part of it."""

import pytest

from shardpost.errors import ShardpostError
from shardpost.topics.creation import AppliedTopic, apply_topics, create_topics
from tests.support.command_line import CommandLine
from tests.support.memory_kafka import MemoryKafka
from tests.support.refusing_kafka import refuse


def is_news(one: AppliedTopic) -> bool:
    return bool(one.created or one.starter or one.plan.changes or one.plan.refusals)


def damage(kafka: MemoryKafka, *topics: str) -> None:
    for topic in topics:
        there = kafka.broker.topics[topic]
        there.config = {**there.config, "retention.ms": "1"}


def test_what_is_refused_is_said_with_the_right_it_takes_and_the_rest_is_done(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(kafka, "retries", "decisions")
    refuse(monkeypatch, "incremental_alter_configs", "retries")
    with pytest.raises(ShardpostError) as refused:
        apply_topics(kafka.settings)
    assert "topic retries: its settings cannot be changed: not authorized" in str(refused.value)
    assert str(refused.value).endswith(": allow AlterConfigs on it for this user")
    assert kafka.broker.topics["decisions"].config["retention.ms"] == "31536000000"


def test_a_topic_that_may_not_be_created_is_named(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.broker.delete_topic("clients")
    refuse(monkeypatch, "create_topics", "clients")
    with pytest.raises(ShardpostError, match=r"clients cannot be created: .*: allow Create on it"):
        apply_topics(kafka.settings)


def test_a_topic_whose_settings_may_not_be_read_is_left_alone_and_named(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(kafka, "retries", "decisions")
    refuse(monkeypatch, "describe_configs", "retries")
    said = {one.topic: one.as_text() for one in apply_topics(kafka.settings) if is_news(one)}
    assert set(said) == {"retries", "decisions"}
    assert "settings is unknown, expected as declared: not authorized" in said["retries"]
    assert kafka.broker.topics["retries"].config["retention.ms"] == "1"


def test_topics_that_are_only_created_stay_as_they_are_once_they_exist(
    kafka: MemoryKafka,
) -> None:
    damage(kafka, "retries")
    kafka.broker.delete_topic("clients")
    created = create_topics(kafka.settings)
    assert [one.topic for one in created if is_news(one)] == ["clients"]
    assert kafka.broker.topics["retries"].config["retention.ms"] == "1"


def test_a_refusal_ends_with_3_and_a_dry_run_changes_nothing(
    kafka: MemoryKafka, shardpost: CommandLine
) -> None:
    damage(kafka, "retries")
    document = {one["topic"]: one for one in shardpost.json("topics", "apply", "--dry-run")}
    assert document["retries"]["changed"] == [
        {"setting": "retention.ms", "found": "1", "to": "604800000"}
    ]
    assert kafka.broker.topics["retries"].config["retention.ms"] == "1"
    kafka.broker.topics["clients"].config = {"cleanup.policy": "delete"}
    assert "left alone: cleanup.policy is delete" in shardpost("topics", "apply", code=3)
    assert kafka.broker.topics["retries"].config["retention.ms"] == "604800000"
