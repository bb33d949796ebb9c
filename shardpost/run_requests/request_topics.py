"""The topics `run-requests` and `run-commands`, partition by partition.

Partition p of one holds the same keys as partition p of the other, so whoever writes the commands
of a partition, under the transactional id `…/dispatch/p`, is alone in deciding on its requests.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from confluent_kafka import Message

from shardpost.errors import ShardpostError
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import partition_counts, watermarks_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Outgoing
from shardpost.run_requests.model.commands import Command, CommandEntry, decode
from shardpost.run_requests.model.requests import RequestRecord
from shardpost.settings import Settings
from shardpost.topics.declared import RUN_COMMANDS, RUN_REQUESTS

LAST_MS = 253_402_300_799_000  # the last second of the year 9999: whatever a producer says


def partitions(settings: Settings) -> int:
    """Return how many partitions both topics have; ShardpostError if they differ."""
    requests, commands = (settings.topic(spec.name) for spec in (RUN_REQUESTS, RUN_COMMANDS))
    counts = partition_counts(settings, [requests, commands])
    if counts[requests] != counts[commands]:
        raise ShardpostError(
            f"{requests} has {counts[requests]} partitions and {commands} {counts[commands]},"
            " expected as many: a key's requests and its command would part. Let all runs end, then"
            " make both topics anew"
        )
    return counts[requests]


def command_entries(settings: Settings, partition: int) -> Iterator[CommandEntry]:
    """Yield the records of one partition of `run-commands`, oldest first, to its end as of now."""
    for message in read_to_end(settings, TopicPartition(settings.topic("run-commands"), partition)):
        entry = decode(message.key(), message.value(), _at(message))
        if entry is not None:
            yield entry


def requests(settings: Settings, partition: int, start: int) -> Iterator[RequestRecord]:
    """Yield what was asked from that offset on; waits for nobody's open transaction."""
    topic = settings.topic("run-requests")
    for message in read_to_end(
        settings, TopicPartition(topic, partition), start=start, committed=True
    ):
        offset = message.offset() or 0
        yield RequestRecord(partition, offset, _at(message), message.key(), message.value())


def kept(settings: Settings, partition: int) -> tuple[int, int]:
    """Return low and high watermark of one partition of `run-requests`."""
    return watermarks_of(
        settings, TopicPartition(settings.topic("run-requests"), partition), committed=False
    )


def command_written(settings: Settings, partition: int, command: Command) -> Outgoing:
    """Return the record of a command."""
    topic = settings.topic("run-commands")
    return Outgoing(topic, command.key.encode(), command.value(), [], partition)


def release_written(settings: Settings, partition: int, key: str, why: str) -> Outgoing:
    """Return the tombstone that frees a key."""
    topic = settings.topic("run-commands")
    return Outgoing(topic, key.encode(), None, [("reason", why.encode())], partition)


def forwarded(settings: Settings, record: RequestRecord, partition: int) -> Outgoing:
    """Return a request as it goes to another partition."""
    topic = settings.topic("run-requests")
    stamp = int(record.at.timestamp() * 1000)
    return Outgoing(topic, record.key or b"", record.value, [], partition, stamp)


def _at(message: Message) -> datetime:
    return datetime.fromtimestamp(min(max(0, message.timestamp()[1]), LAST_MS) / 1000, UTC)
