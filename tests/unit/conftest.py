"""Unit tests open no socket: one that tries fails, and says where it wanted to go.

What many of them start from: a home with Kafka in memory.
"""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.memory_kafka import MemoryKafka, memory_kafka


@pytest.fixture(autouse=True)
def _closed_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_socket: socket.socket, address: Any) -> None:
        raise AssertionError(f"a unit test wanted to connect to {address}: move it to another tier")

    for name in ("connect", "connect_ex", "bind"):
        monkeypatch.setattr(socket.socket, name, refuse)


@pytest.fixture
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryKafka]:
    """Give a home with Kafka in memory, by the settings KAFKA of the test's module."""
    given = getattr(request.module, "KAFKA", {"partitions": 2, "kafka_timeout": 1})
    with memory_kafka(home=tmp_path, **given) as kafka:
        apply_topics(kafka.settings)
        yield kafka


@pytest.fixture
def at(kafka: MemoryKafka) -> Settings:
    """Give the settings of that home."""
    return kafka.settings
