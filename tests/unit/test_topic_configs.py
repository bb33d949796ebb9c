"""Asking for the configuration of topics while brokers restart, or without the right to."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from shardpost.errors import ShardpostError
from shardpost.kafka.clients import KafkaUnreachableError
from shardpost.kafka.topic_configs import topic_configs
from shardpost.settings import Settings
from tests.support.memory_kafka.admin import MemoryAdmin


def failing(monkeypatch: pytest.MonkeyPatch, code: int, times: int) -> None:
    """Let Kafka answer so many times with that error."""
    answer, left = MemoryAdmin.describe_configs, [code] * times

    def describe(*args: Any, **kwargs: Any) -> Any:
        if left:
            raise KafkaException(KafkaError(left.pop()))
        return answer(*args, **kwargs)

    monkeypatch.setattr(MemoryAdmin, "describe_configs", describe)


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_while_brokers_restart_it_is_asked_again(
    at: Settings, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    topic = at.topic("positions")
    failing(monkeypatch, code, 2)
    assert topic_configs(at, [topic])[topic]["cleanup.policy"] == "compact"
    failing(monkeypatch, code, 1000)
    with pytest.raises(KafkaUnreachableError):
        topic_configs(at.model_copy(update={"kafka_timeout": 0.2}), [topic])


def test_without_the_right_the_error_says_what_to_allow(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED, 1)
    with pytest.raises(ShardpostError, match=r"allow DescribeConfigs on topic\(s\) a, b for"):
        topic_configs(at, ["b", "a"])
