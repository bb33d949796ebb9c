"""The topic `decisions`: its records are written within the transactions of the features."""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta

from shardpost.decisions import Decision, decode
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import endings, first_offsets_since
from shardpost.kafka.reading import headers_of, read_to_end
from shardpost.kafka.records import Outgoing
from shardpost.kafka.topic_metadata import partition_counts, with_leaders
from shardpost.kafka.transactions import Transactions
from shardpost.settings import Settings

# How far the time of a record may be before the time that its decision says.
CLOCKS_DIFFER = timedelta(days=1)


def written(settings: Settings, decision: Decision, headers: dict[str, bytes]) -> Outgoing:
    """Return the record of a decision."""
    topic = settings.topic("decisions")
    return Outgoing(topic, decision.about, decision.value(), [*headers.items()])


def record(
    settings: Settings,
    transactional_id: str,
    decision: Decision,
    headers: dict[str, bytes],
    *,
    fenced: str,
    failed: str,
) -> None:
    """Write a decision in a transaction of its own; `fenced` and `failed` are those errors."""
    with closing(
        Transactions(settings, transactional_id, fenced=fenced, failed=failed)
    ) as transactions:
        transactions.open()
        transactions.write([written(settings, decision, headers)])


def list_since(
    settings: Settings, oldest: datetime, *, most: int | None = None
) -> Iterator[tuple[Decision, dict[str, bytes]]]:
    """Yield the decisions since a time, with their headers, and read none that is far older.

    `most`: only those among so many offsets at the end of each partition.
    """
    topic, at_ms = settings.topic("decisions"), int((oldest - CLOCKS_DIFFER).timestamp() * 1000)
    count = partition_counts(settings, [topic])[topic]
    partitions = [TopicPartition(topic, number) for number in range(count)]
    starts = with_leaders(
        settings, lambda: first_offsets_since(settings, partitions, at_ms).offsets
    )
    ends = endings(settings, partitions, committed=True).offsets if most is not None else {}
    for partition, first in sorted(starts.items()):
        start = max(first, ends[partition] - most) if most and partition in ends else first
        if first >= 0:
            for decision, headers in of_partition(settings, partition.partition, start):
                if decision.when >= oldest:
                    yield decision, headers


def of_partition(
    settings: Settings, partition: int, start: int | None
) -> Iterator[tuple[Decision, dict[str, bytes]]]:
    """Yield the decisions of one partition from that offset on, with their headers."""
    for message in read_to_end(
        settings, TopicPartition(settings.topic("decisions"), partition), start=start
    ):
        decision = decode(message.key(), message.value())
        if decision is not None:
            headers = headers_of(message)
            yield decision, {name: raw for name, raw in headers if isinstance(raw, bytes)}
