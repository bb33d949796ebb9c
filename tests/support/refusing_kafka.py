"""A Kafka in memory that refuses something to its user."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.support.memory_kafka.admin import MemoryAdmin


def refuse(monkeypatch: pytest.MonkeyPatch, method: str, topic: str) -> None:
    """Let Kafka refuse this to the user on that topic; all others are answered."""
    answer = getattr(MemoryAdmin, method)
    refusal = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized"))

    def answered(*args: Any, **more: Any) -> dict[Any, Any]:
        futures = dict(answer(*args, **more))
        for one in futures:
            if getattr(one, "name", one) == topic:
                futures[one] = Future()
                futures[one].set_exception(refusal)
        return futures

    monkeypatch.setattr(MemoryAdmin, method, answered)
