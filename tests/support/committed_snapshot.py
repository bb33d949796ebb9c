"""A snapshot of holders that is committed, and not passed on yet; and what was published."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.delta.table import Table
from shardpost.holders import compaction
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.inputs import Inputs
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.holders.model.published import RunCounts
from shardpost.holders.model.topic_state import TopicState, Unread
from shardpost.holders.model.view_tables import (
    REJECTED_RECORDS,
    SHARE_HOLDERS,
    SHARE_HOLDERS_CHANGES,
)
from shardpost.kafka.records import Record, TopicPartition, partition_of
from shardpost.spark.job import JobResult
from shardpost.topics import guards
from shardpost.values.holding_rule import Rule
from tests.support.histories import START, overwrite, rejected_row, snapshot
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka

SHARDS = 2


def held(
    kafka: MemoryKafka, number: int, holders: Mapping[str, list[str]], **changed: int
) -> Snapshot:
    """Write the table of holders, each changed in that snapshot; return the snapshot."""
    rows = [
        {
            "client": client,
            "positions": ids,
            "snapshot": changed.get(client, number),
            "shard": partition_of(client, SHARDS),
        }
        for client, ids in holders.items()
    ]
    both: dict[Table, list[dict[str, Any]]] = {SHARE_HOLDERS: rows, SHARE_HOLDERS_CHANGES: []}
    return snapshot(
        number, {t.name: overwrite(kafka.settings, t, found) for t, found in both.items()}
    )


def commit_snapshot(kafka: MemoryKafka, **holders: list[str]) -> Snapshot:
    """Commit a snapshot, of those holders and a rejected record, that covers the inputs."""
    settings = kafka.settings
    row = rejected_row(settings.topic("positions"), 3, key=b"1")
    view = held(kafka, 1, holders or {"client": ["1"]})
    tables = {
        **view.tables,
        REJECTED_RECORDS.name: overwrite(settings, REJECTED_RECORDS, [row]),
    }
    inputs = Inputs(installed(settings))
    ends = inputs.unread(inputs.look(START, None)).ends
    made = Snapshot(
        *(1, START, START, ends, tables, Counts(1, 1, 1, 1)),
        *(settings.rule, SHARDS, "test", settings.home.name),
    )
    snapshots.commit(installed(settings).tables, made)
    return made


def compact(kafka: MemoryKafka, asked: CompactionRequest) -> JobResult:
    """Compact with a snapshot that notes what was read, and of which one client always holds one.

    All but the tables is as the job has it.
    """

    def build(
        state: TopicState, unread: Unread, rule: Rule, _: object
    ) -> tuple[Snapshot, RunCounts]:
        number = state.last.number + 1 if state.last else 1
        rejected = {REJECTED_RECORDS.name: overwrite(kafka.settings, REJECTED_RECORDS, [])}
        tables = {**held(kafka, number, {"client": ["1"]}).tables, **rejected}
        now = datetime.now(UTC)
        made = Snapshot(
            *(number, now, now, {}, tables, Counts(1, 1, 1, 0)),
            *(rule, SHARDS, "test", kafka.settings.home.name),
        )
        return state.noted(made, unread, kafka.settings.rule), RunCounts()

    with guards.run(installed(kafka.settings), COMPACT_POSITIONS.name):
        result = compaction.compact(installed(kafka.settings), asked, build)
    assert result is not None
    return result


def records(kafka: MemoryKafka) -> list[Record]:
    """Return what was published, in the order of each partition."""
    topic = kafka.settings.topic("share-holders")
    parts = [TopicPartition(topic, number) for number in range(SHARDS)]
    return [record for part in parts for record in kafka.committed(part)]


def published(kafka: MemoryKafka) -> dict[str, Any]:
    """Return what a reader knows: the form of each client without its name."""
    last = {(record.key or b"").decode(): record.value for record in records(kafka)}
    found = {client: json.loads(value) for client, value in last.items() if value is not None}
    for client, form in found.items():
        assert form.pop("Client") == client
    return found


def limit(kafka: MemoryKafka, bytes_: int) -> None:
    """Let records of `share-holders` have so many bytes at most."""
    configure(kafka, {"max.message.bytes": str(bytes_)})


def configure(kafka: MemoryKafka, values: Mapping[str, str]) -> None:
    """Change settings of `share-holders`."""
    topic = kafka.broker.topics[kafka.settings.topic("share-holders")]
    topic.config = {**topic.config, **values}
