"""The parts of a compaction that need no Spark."""

from datetime import UTC, datetime

import pytest

from shardpost.errors import ShardpostError
from shardpost.holders import compaction, inputs
from shardpost.holders.model.unread import Look
from shardpost.kafka import offsets
from tests.support.memory_kafka import memory_kafka


def test_offsets_that_only_lag_tools_read_stop_nothing_if_they_are_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise ShardpostError("the group is not empty")

    with memory_kafka() as kafka:
        for topic in ("positions", "clients", "exchanges", "retries"):
            kafka.broker.create_topic(topic, 2, {"cleanup.policy": "compact"})
        settings = kafka.settings
        topics = [*inputs.input_topics(settings), *inputs.retry_topics(settings)]
        counts = offsets.partition_counts(settings, topics)
        found = inputs.unread(settings, Look(datetime.now(UTC), None, counts))
        monkeypatch.setattr(offsets, "commit_offsets", refuse)
        compaction._commit_offsets(settings, found)
    assert "shardpost-compaction were not committed: the group is not empty" in caplog.text
