"""The topics `run-requests` and `run-commands`, partition by partition.

Partition p of one holds the same keys as partition p of the other, so the one writer of the
commands of a partition, under the transactional id `…/dispatch/p`, alone decides on its requests.
"""

import time
from collections.abc import Iterator, Sequence
from functools import partial

from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.instants import instant_of
from shardpost.kafka import offsets
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.reading import read_to_end, record_of
from shardpost.kafka.records import Outgoing, TopicPartition
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.kafka.transactions import Consumed, Transactions
from shardpost.run_requests.model.commands import CommandEntry, decode
from shardpost.topics import guards
from shardpost.wording import counted

GROUP = "shardpost-dispatch"
# Held by whoever writes commands.
LOCK = "dispatch_run_requests"


def partitions(kafka: Kafka) -> int:
    """Return how many partitions both topics have; ShardpostError if they differ."""
    requests, commands = kafka.topic("run-requests"), kafka.topic("run-commands")
    counts = partition_counts(kafka, [requests, commands])
    if counts[requests] != counts[commands]:
        raise ShardpostError(
            f"{requests} has {counted(counts[requests], 'partition')} and {commands}"
            f" {counts[commands]}, expected the same number: a key's requests and its command must"
            " be in the same partition. Wait until all runs have ended, then delete and recreate"
            " both topics"
        )
    return counts[requests]


def command_entries(kafka: Kafka, partition: int) -> Iterator[CommandEntry]:
    """Yield the records of one partition of `run-commands`, oldest first, to its end as of now."""
    for message in read_to_end(kafka, TopicPartition(kafka.topic("run-commands"), partition)):
        record = record_of(message)
        entry = decode(record.key, record.value, instant_of(record.timestamp))
        if entry is not None:
            yield entry


def release_record(kafka: Kafka, partition: int, key: str, reason: str) -> Outgoing:
    """Return the tombstone that frees a key."""
    topic = kafka.topic("run-commands")
    return Outgoing(topic, key.encode(), None, [("reason", reason.encode())], partition)


class CommandWriter:
    """The one writer of a partition of run commands, with its group's offset in `run-requests`."""

    def __init__(self, installation: Installation, partition: int) -> None:
        self._installation = installation
        self._requests = TopicPartition(installation.kafka.topic("run-requests"), partition)
        transactional_id = f"{self._requests.topic}/dispatch/{partition}"
        self._transactions = Transactions(
            installation.kafka,
            transactional_id,
            may_write=partial(guards.require_owner, installation),
            fenced=f"fenced: a newer dispatch has taken over {transactional_id}; this dispatch"
            " stops",
            failed=f"{transactional_id}: the transaction failed ({{reason}}); run it again",
        )
        self._reader = installation.kafka.consumer(GROUP)
        self._committed_at = 0.0

    def open(self) -> None:
        """Fence all older writers; their open transactions are ended before this returns."""
        self._transactions.open()
        self._committed_at = time.monotonic()

    def committed_offset(self) -> int | None:
        """Return the offset from which requests are to be read; None if none was committed."""
        return offsets.committed_offset(self._installation.kafka, self._reader, self._requests)

    def commit(self, records: Sequence[Outgoing], offset: int | None = None) -> None:
        """Write records and offset in one transaction; FencedError if a newer writer is there.

        Without records and without an offset, nothing is done.
        """
        consumed = None if offset is None else Consumed(self._reader, self._requests, offset)
        self._transactions.write(records, consumed)
        if records or consumed:
            self._committed_at = time.monotonic()

    def has_committed_within(self, seconds: float) -> bool:
        """Tell whether its last commit is less than `seconds` ago."""
        return time.monotonic() - self._committed_at < seconds

    def close(self) -> None:
        """Close the connections to Kafka."""
        self._reader.close()
        self._transactions.close()


class RequestWatch:
    """Whether requests wait to be dispatched, checked again and again over one connection."""

    def __init__(self, kafka: Kafka) -> None:
        topic = kafka.topic("run-requests")
        self._kafka = kafka
        self._partitions = [TopicPartition(topic, n) for n in range(partitions(kafka))]
        self._group = kafka.consumer(GROUP)
        self._reported: dict[int, int] = {}

    def pending_ends(self) -> dict[int, int] | None:
        """Return {partition: end} if requests wait, and some came since that was last reported.

        What is reported once and not dispatched is left to the schedule. KafkaUnreachableError if
        Kafka does not answer.
        """
        listed = offsets.endings(self._kafka, self._partitions, committed=True)
        stable = listed.require_all(self._kafka).offsets
        ends = {source.partition: offset for source, offset in stable.items()}
        if ends == self._reported:
            return None
        known = offsets.committed_offsets(self._kafka, self._group, self._partitions)
        committed = {source.partition: offset for source, (offset, _) in known.items()}
        self._reported = ends
        return ends if any(end > committed.get(n, 0) for n, end in ends.items()) else None

    def close(self) -> None:
        """Close the connection to Kafka."""
        self._group.close()
