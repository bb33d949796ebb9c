"""What unit tests start from: a home, with Kafka in memory or without. They open no socket."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.command_line import CommandLineHere
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka, memory_kafka


@pytest.fixture(autouse=True)
def _closed_sockets(tables_at: object, monkeypatch: pytest.MonkeyPatch) -> None:
    if tables_at is not None:  # a store's, which only runs with every case have
        return

    def refuse(_socket: socket.socket, address: Any) -> None:
        raise AssertionError(f"a unit test wanted to connect to {address}: move it to another tier")

    for name in ("connect", "connect_ex", "bind"):
        monkeypatch.setattr(socket.socket, name, refuse)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Give the settings of an empty home, without Kafka."""
    return Settings(home=tmp_path)


@pytest.fixture
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryKafka]:
    """Give a home with Kafka in memory, by the settings KAFKA of the test's module."""
    given = getattr(request.module, "KAFKA", {"partitions": 2, "kafka_timeout": 1})
    with memory_kafka(home=tmp_path, **given) as kafka:
        apply_topics(installed(kafka.settings))
        yield kafka


@pytest.fixture
def at(kafka: MemoryKafka) -> Settings:
    """Give the settings of that home."""
    return kafka.settings


@pytest.fixture
def shardpost(at: Settings) -> CommandLineHere:
    """Give the command, in this process and with the settings `at`."""
    return CommandLineHere(at.environ())
