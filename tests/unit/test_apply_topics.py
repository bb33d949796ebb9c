"""`topics apply` as a command, and where Kafka refuses a part of it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardpost import cli
from shardpost.errors import ShardpostError
from shardpost.settings import loading
from shardpost.topics.creation import AppliedTopic, apply_topics, create_topics
from tests.support.memory_kafka import MemoryKafka, memory_kafka
from tests.support.refusing_kafka import refuse


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[MemoryKafka]:
    with memory_kafka(home=tmp_path, partitions=2, kafka_timeout=1) as memory:
        apply_topics(memory.settings)
        yield memory


def is_news(one: AppliedTopic) -> bool:
    return bool(one.created or one.starter or one.plan.changes or one.plan.refusals)


def damage(memory: MemoryKafka, *topics: str) -> None:
    for topic in topics:
        there = memory.broker.topics[topic]
        there.config = {**there.config, "retention.ms": "1"}


def test_what_is_refused_is_said_with_the_right_it_takes_and_the_rest_is_done(
    memory: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(memory, "retries", "decisions")
    refuse(monkeypatch, "incremental_alter_configs", "retries")
    with pytest.raises(ShardpostError) as refused:
        apply_topics(memory.settings)
    assert "topic retries: its settings cannot be changed: not authorized" in str(refused.value)
    assert str(refused.value).endswith(": allow AlterConfigs on it for this user")
    assert memory.broker.topics["decisions"].config["retention.ms"] == "31536000000"


def test_a_topic_that_may_not_be_created_is_named(
    memory: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.broker.delete_topic("clients")
    refuse(monkeypatch, "create_topics", "clients")
    with pytest.raises(ShardpostError, match=r"clients cannot be created: .*: allow Create on it"):
        apply_topics(memory.settings)


def test_a_topic_whose_settings_may_not_be_read_is_left_alone_and_named(
    memory: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(memory, "retries", "decisions")
    refuse(monkeypatch, "describe_configs", "retries")
    said = {one.topic: one.as_text() for one in apply_topics(memory.settings) if is_news(one)}
    assert set(said) == {"retries", "decisions"}
    assert "settings is unknown, expected as declared: not authorized" in said["retries"]
    assert memory.broker.topics["retries"].config["retention.ms"] == "1"


def test_topics_that_are_only_created_stay_as_they_are_once_they_exist(
    memory: MemoryKafka,
) -> None:
    damage(memory, "retries")
    memory.broker.delete_topic("clients")
    created = create_topics(memory.settings)
    assert [one.topic for one in created if is_news(one)] == ["clients"]
    assert memory.broker.topics["retries"].config["retention.ms"] == "1"


def test_a_refusal_ends_with_3_and_a_dry_run_changes_nothing(
    memory: MemoryKafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loading, "_of_this_process", lambda: memory.settings)
    damage(memory, "retries")
    assert cli.run(["topics", "apply", "--dry-run", "--json"]) == 0
    document = {one["topic"]: one for one in json.loads(capsys.readouterr().out)}
    assert document["retries"]["changed"] == [
        {"setting": "retention.ms", "found": "1", "to": "604800000"}
    ]
    assert memory.broker.topics["retries"].config["retention.ms"] == "1"
    memory.broker.topics["clients"].config = {"cleanup.policy": "delete"}
    assert cli.run(["topics", "apply"]) == 3
    assert "left alone: cleanup.policy is delete" in capsys.readouterr().out
    assert memory.broker.topics["retries"].config["retention.ms"] == "604800000"
