"""The records that a new topic starts with."""

import json
import time

from shardpost.errors import ShardpostError
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import watermarks
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Outgoing
from shardpost.kafka.transactions import Transactions
from shardpost.settings import Settings
from shardpost.topics.declared import TopicSpec

RETRY_SECONDS = 1.0


def write_starter_records(settings: Settings, spec: TopicSpec, partitions: int) -> int:
    """Write its starter records to a topic without any record, in one transaction.

    Returns how many were written. A process that is killed leaves no committed record, so the next
    call writes all of them. Of two at the same time the later fences the earlier, which then finds
    the records of the other.
    """
    topic = settings.topic(spec.name)
    deadline = time.monotonic() + settings.kafka_timeout
    while not _has_records(settings, topic, partitions):
        try:
            return _write(settings, spec, partitions)
        except ShardpostError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
    return 0


def _write(settings: Settings, spec: TopicSpec, partitions: int) -> int:
    topic = settings.topic(spec.name)
    transactions = Transactions(
        settings,
        f"starter/{topic}",
        fenced=f"fenced: another process writes the starter records of {topic}",
        failed=f"topic {topic}: its starter records cannot be written ({{reason}})",
    )
    try:
        transactions.open()
        if _has_records(settings, topic, partitions):
            return 0
        transactions.write(
            [
                Outgoing(topic, key.encode(), json.dumps(value).encode(), [])
                for key, value in spec.starter.items()
            ]
        )
    finally:
        transactions.close()
    return len(spec.starter)


def _has_records(settings: Settings, topic: str, partitions: int) -> bool:
    """Tell whether the topic has a committed record."""
    ends = watermarks(settings, {topic: partitions}, committed=True)[topic]
    return any(
        next(read_to_end(settings, TopicPartition(topic, partition)), None) is not None
        for partition, (low, end) in ends.items()
        if end > low
    )
