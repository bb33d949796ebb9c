"""The topics `run-requests` and `run-commands`, partition by partition.

Partition p of one holds the same keys as partition p of the other, so the one writer of the
commands of a partition, under the transactional id `…/dispatch/p`, alone decides on its requests.
"""

import time
from collections.abc import Iterator, Sequence

from shardpost import ownership
from shardpost.errors import ShardpostError
from shardpost.instants import instant_of
from shardpost.kafka import clients, offsets
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import endings, watermark_of
from shardpost.kafka.reading import read_to_end, record_of
from shardpost.kafka.records import Outgoing, Record
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.kafka.transactions import Consumed, Transactions
from shardpost.run_requests.model.commands import CommandEntry, decode
from shardpost.settings import Settings
from shardpost.wording import counted


def partitions(settings: Settings) -> int:
    """Return how many partitions both topics have; ShardpostError if they differ."""
    requests, commands = settings.topic("run-requests"), settings.topic("run-commands")
    counts = partition_counts(settings, [requests, commands])
    if counts[requests] != counts[commands]:
        raise ShardpostError(
            f"{requests} has {counted(counts[requests], 'partition')} and {commands}"
            f" {counts[commands]}, expected the same number: a key's requests and its command"
            " belong in the same partition. Let all runs end, then delete and recreate both topics"
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
    """Yield the records of a partition of `run-requests` from an offset to its last stable one."""
    source = TopicPartition(settings.topic("run-requests"), partition)
    return map(record_of, read_to_end(settings, source, start=start, committed=True))


def request_bounds(settings: Settings, partition: int) -> tuple[int, int]:
    """Return low and high watermark of one partition of `run-requests`."""
    source = TopicPartition(settings.topic("run-requests"), partition)
    return watermark_of(settings, source, committed=False)


def release_record(settings: Settings, partition: int, key: str, reason: str) -> Outgoing:
    """Return the tombstone that frees a key."""
    topic = settings.topic("run-commands")
    return Outgoing(topic, key.encode(), None, [("reason", reason.encode())], partition)


GROUP = "shardpost-dispatch"


class CommandWriter:
    """The one writer of a partition of run commands, with its group's offset in `run-requests`."""

    def __init__(self, settings: Settings, partition: int) -> None:
        self._settings = settings
        self._requests = TopicPartition(settings.topic("run-requests"), partition)
        transactional_id = f"{self._requests.topic}/dispatch/{partition}"
        self._transactions = Transactions(
            settings,
            transactional_id,
            may_write=ownership.require,
            fenced=f"fenced: a newer dispatch has taken over {transactional_id}; this one stops",
            failed=f"{transactional_id}: the transaction failed ({{reason}}); run it again",
        )
        self._reader = clients.consumer(settings, GROUP)
        self._committed_at = 0.0

    def open(self) -> None:
        """Fence all older writers; their open transactions are ended before this returns."""
        self._transactions.open()
        self._committed_at = time.monotonic()

    def committed_offset(self) -> int | None:
        """Return the offset from which requests are to be read; None if none was committed."""
        return offsets.committed_offset(self._settings, self._reader, self._requests)

    def commit(self, records: Sequence[Outgoing], offset: int | None = None) -> None:
        """Write records and offset in one transaction; FencedError if a newer writer is there.

        Without records and without an offset, nothing is done.
        """
        consumed = None if offset is None else Consumed(self._reader, self._requests, offset)
        self._transactions.write(records, consumed)
        if records or consumed:
            self._committed_at = time.monotonic()

    def has_committed_within(self, seconds: float) -> bool:
        """Tell whether its last commit is less than so many seconds ago."""
        return time.monotonic() - self._committed_at < seconds

    def close(self) -> None:
        """Close the connections to Kafka."""
        self._reader.close()
        self._transactions.close()


class RequestWatch:
    """Whether requests wait to be dispatched, checked again and again over one connection."""

    def __init__(self, settings: Settings) -> None:
        topic = settings.topic("run-requests")
        self._settings = settings
        self._partitions = [TopicPartition(topic, n) for n in range(partitions(settings))]
        self._group = clients.consumer(settings, GROUP)
        self._reported: dict[int, int] = {}

    def pending_ends(self) -> dict[int, int] | None:
        """Return {partition: end} if requests wait, and some came since that was last reported.

        What is reported once and not dispatched is left to the schedule. KafkaUnreachableError if
        Kafka does not answer.
        """
        listed = endings(self._settings, self._partitions, committed=True)
        stable = listed.require_all(self._settings).offsets
        ends = {source.partition: offset for source, offset in stable.items()}
        if ends == self._reported:
            return None
        known = offsets.committed_offsets(self._settings, self._group, self._partitions)
        committed = {source.partition: offset for source, (offset, _) in known.items()}
        self._reported = ends
        return ends if any(end > committed.get(n, 0) for n, end in ends.items()) else None

    def close(self) -> None:
        """Close the connection to Kafka."""
        self._group.close()
