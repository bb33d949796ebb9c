"""Unit tests open no socket: one that tries fails, and says where it wanted to go."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
    """Give an in-memory Kafka with the declared topics; `KAFKA` of a module are its settings."""
    settings: dict[str, Any] = getattr(request.module, "KAFKA", {"partitions": 2})
    with memory_kafka(home=tmp_path, **settings) as made:
        apply_topics(made.settings)
        yield made
