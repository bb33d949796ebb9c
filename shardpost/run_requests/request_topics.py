"""The topics `run-requests` and `run-commands`, partition by partition.

Partition p of one holds the same keys as partition p of the other, so the one writer of the
commands of a partition, under the transactional id `…/dispatch/p`, alone decides on its requests.
"""

from collections.abc import Iterator

from shardpost.errors import ShardpostError
from shardpost.instants import instant_of
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.messages import record_of
from shardpost.kafka.offsets import partition_counts, watermarks_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Outgoing, Record
from shardpost.run_requests.model.commands import Command, CommandEntry, decode
from shardpost.settings import Settings


def partitions(settings: Settings) -> int:
    """Return how many partitions both topics have; ShardpostError if they differ."""
    requests, commands = settings.topic("run-requests"), settings.topic("run-commands")
    counts = partition_counts(settings, [requests, commands])
    if counts[requests] != counts[commands]:
        raise ShardpostError(
            f"{requests} has {counts[requests]} partitions and {commands} {counts[commands]},"
            " expected the same number: a key's requests and its command belong in the same"
            " partition. Let all runs end, then delete and recreate both topics"
        )
    return counts[requests]


def command_entries(settings: Settings, partition: int) -> Iterator[CommandEntry]:
    """Yield the records of one partition of `run-commands`, oldest first, to its end as of now."""
    for message in read_to_end(settings, TopicPartition(settings.topic("run-commands"), partition)):
        record = record_of(message)
        entry = decode(record.key, record.value, instant_of(record.timestamp))
        if entry is not None:
            yield entry


def requests(settings: Settings, partition: int, start: int) -> Iterator[Record]:
    """Yield the records of one partition of `run-requests` from that offset on.

    Waits for no open transaction.
    """
    of_requests = TopicPartition(settings.topic("run-requests"), partition)
    for message in read_to_end(settings, of_requests, start=start, committed=True):
        yield record_of(message)


def request_bounds(settings: Settings, partition: int) -> tuple[int, int]:
    """Return low and high watermark of one partition of `run-requests`."""
    of_requests = TopicPartition(settings.topic("run-requests"), partition)
    return watermarks_of(settings, of_requests, committed=False)


def command_record(settings: Settings, partition: int, command: Command) -> Outgoing:
    """Return the record of a command."""
    topic = settings.topic("run-commands")
    return Outgoing(topic, command.key.encode(), command.value(), [], partition)


def release_record(settings: Settings, partition: int, key: str, reason: str) -> Outgoing:
    """Return the tombstone that frees a key."""
    topic = settings.topic("run-commands")
    return Outgoing(topic, key.encode(), None, [("reason", reason.encode())], partition)


def forwarded_record(record: Record, partition: int) -> Outgoing:
    """Return a request as it is written to another partition of its topic."""
    timestamp_ms = int(instant_of(record.timestamp).timestamp() * 1000)
    return Outgoing(record.topic, record.key or b"", record.value, [], partition, timestamp_ms)
