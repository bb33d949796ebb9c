"""The one writer of a partition of run commands: opening it fences every older one.

A commit may hold the offset up to which the requests were read, for the group that reads them.
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
    """The writer of one partition, with its group's offset in `run-requests`."""

    def __init__(self, settings: Settings, partition: int) -> None:
        self._settings = settings
        self._requests = TopicPartition(settings.topic("run-requests"), partition)
        transactional_id = f"{self._requests.topic}/dispatch/{partition}"
        self._transactions = Transactions(
            settings,
            transactional_id,
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
        return offsets.committed(self._settings, self._reader, self._requests)

    def commit(self, records: Sequence[Outgoing], offset: int | None = None) -> None:
        """Write records and offset in one transaction; FencedError if a newer writer is there.

        Without records and without an offset, nothing is done.
        """
        consumed = None if offset is None else Consumed(self._reader, self._requests, offset)
        self._transactions.write(records, consumed)
        if records or consumed:
            self._committed_at = time.monotonic()

    def has_committed_within(self, seconds: float) -> bool:
        """Tell whether it was the partition's writer so many seconds ago."""
        return time.monotonic() - self._committed_at < seconds

    def close(self) -> None:
        """Close the connections to Kafka."""
        self._reader.close()
        self._transactions.close()
