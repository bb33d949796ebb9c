"""The one writer of a partition of run commands: who opens it fences whoever had it before.

Each commit may hold the place up to which the requests were read, for the group that reads them.
"""

import time
from collections.abc import Sequence

from shardpost.kafka import clients, offsets
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.records import Outgoing
from shardpost.kafka.transactions import Consumed, Transactions
from shardpost.settings import Settings

GROUP = "shardpost-dispatch"


class CommandWriter:
    """The writer of one partition, and its place among the requests."""

    def __init__(self, settings: Settings, partition: int) -> None:
        self._settings, self._partition = settings, partition
        self._topic = settings.topic("run-requests")
        name = f"{self._topic}/dispatch/{partition}"
        self._writer = Transactions(
            settings,
            name,
            fenced=f"fenced: a newer dispatch has taken over {name}; this one stops",
            failed=f"{name}: cannot be written ({{reason}}); run again",
        )
        self._reader = clients.consumer(settings, GROUP)
        self._committed_at = 0.0

    def open(self) -> None:
        """Fence all older writers; their open transactions are ended before this returns."""
        self._writer.open()
        self._committed_at = time.monotonic()

    def place(self) -> int | None:
        """Return the offset from which requests are read on; None if none was ever committed."""
        return offsets.committed(
            self._settings, self._reader, TopicPartition(self._topic, self._partition)
        )

    def commit(self, writes: Sequence[Outgoing], place: int | None = None) -> None:
        """Write all in one transaction, with the place; FencedError if another took over.

        Without records and without a place, nothing is done.
        """
        consumed = None
        if place is not None:
            consumed = Consumed(self._reader, TopicPartition(self._topic, self._partition), place)
        self._writer.write(writes, consumed)
        if writes or consumed:
            self._committed_at = time.monotonic()

    def fresh(self, seconds: float) -> bool:
        """Tell whether it was the partition's writer so many seconds ago."""
        return time.monotonic() - self._committed_at < seconds

    def close(self) -> None:
        """Let go of Kafka."""
        self._reader.close()
        self._writer.close()
