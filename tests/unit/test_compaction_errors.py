"""What a compaction says of its errors: how far it came."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from shardpost.errors import ShardpostError
from shardpost.holders.spark import compaction
from shardpost.kafka import clients
from shardpost.kafka.clients import KafkaUnreachableError
from shardpost.settings import Settings


def fail(error: Exception) -> Callable[..., None]:
    def failing(*_: object) -> None:
        raise error

    return failing


GONE = [KafkaUnreachableError("no answer"), PySparkException("a timeout")]
OTHERS = [ShardpostError("the tables"), PySparkException("out of memory"), OSError("disk full")]


@pytest.mark.parametrize("gone", GONE)
def test_without_kafka_it_says_that_nothing_was_changed(
    gone: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compaction, "_compact", fail(gone))
    monkeypatch.setattr(clients, "why_gone", lambda _: "connection refused")
    with pytest.raises(KafkaUnreachableError) as found:
        compaction.compact(Settings(home=tmp_path))
    assert str(found.value).startswith("nothing was changed: ")
    assert str(found.value).endswith("; then run it again")
    assert isinstance(gone, PySparkException) == ("(connection refused)" in str(found.value))


@pytest.mark.parametrize("error", OTHERS)
def test_any_other_error_stays_as_it_is(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compaction, "_compact", fail(error))
    monkeypatch.setattr(clients, "why_gone", lambda _: None)
    with pytest.raises(type(error)) as found:
        compaction.compact(Settings(home=tmp_path))
    assert found.value is error
