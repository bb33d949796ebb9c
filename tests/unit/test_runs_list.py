"""`shardpost runs list` where nothing is in force."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardpost import cli
from shardpost.commands import runs
from shardpost.topics.creation import apply_topics
from tests.support.memory_kafka import MemoryKafka, memory_kafka


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[MemoryKafka]:
    with memory_kafka(home=tmp_path, partitions=2) as kafka:
        apply_topics(kafka.settings)
        yield kafka


def test_an_empty_list_says_that_every_key_is_free(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "load", lambda: kafka.settings)
    assert cli.run(["runs", "list"]) == 0
    assert capsys.readouterr().out == ("no requested run is waiting or running\n")
    assert cli.run(["runs", "list", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"
