"""The log of one partition in memory: records, transaction markers, and what was deleted."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from operator import attrgetter
from typing import NamedTuple

from shardpost.kafka.records import Headers


class TransactionState(Enum):
    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


class Stored(NamedTuple):
    """A record without its coordinates; `timestamp` as clients have it: (type, milliseconds)."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: tuple[int, int]

    @property
    def size(self) -> int:
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


@dataclass(eq=False)
class Transaction:
    """A transaction; its entries in the logs change with its state."""

    state: TransactionState = TransactionState.OPEN


class Entry(NamedTuple):
    """What has an offset: a record or, where that is None, the marker that ends a transaction."""

    offset: int
    stored: Stored | None
    transaction: Transaction | None

    @property
    def is_committed_record(self) -> bool:
        """Whether readers of committed records are given it."""
        is_final = self.transaction is None or self.transaction.state is TransactionState.COMMITTED
        return self.stored is not None and is_final


@dataclass
class PartitionLog:
    """One partition's entries by ascending offsets, which may have holes.

    Whether it has a leader only the admin client says: all others find one.
    """

    low: int = 0
    end: int = 0
    entries: list[Entry] = field(default_factory=list)
    has_leader: bool = True
    # {open transaction: its first offset}
    open: dict[Transaction, int] = field(default_factory=dict)

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction, else the end."""
        return min(self.open.values(), default=self.end)

    def append(self, stored: Stored, transaction: Transaction | None) -> int:
        if transaction is not None:
            self.open.setdefault(transaction, self.end)
        return self._append(stored, transaction)

    def end_transaction(self, transaction: Transaction) -> None:
        del self.open[transaction]
        self._append(None, transaction)

    def _append(self, stored: Stored | None, transaction: Transaction | None) -> int:
        self.entries.append(Entry(self.end, stored, transaction))
        self.end += 1
        return self.end - 1

    def read(self, start: int, *, committed: bool) -> Iterator[Entry]:
        """Yield what a reader is given from an offset on: records, and markers without content.

        With `committed`: what was committed below the last stable offset.
        """
        until = self.last_stable_offset if committed else self.end
        first = bisect_left(self.entries, start, key=attrgetter("offset"))
        for entry in self.entries[first:]:
            if entry.offset >= until:
                return
            if entry.stored is None or entry.is_committed_record or not committed:
                yield entry

    def compact(self, *, drop_tombstones: bool = False) -> None:
        """Keep the last committed record of each key; drop what was aborted.

        Of open transactions and what lies above them nothing is taken, and never the last entry.
        """
        stable = min(self.last_stable_offset, self.end - 1)
        last = {
            entry.stored.key: entry.offset
            for entry in self.entries
            if entry.stored is not None and entry.is_committed_record and entry.offset < stable
        }

        def stays(entry: Entry) -> bool:
            if entry.offset >= stable or entry.stored is None:
                return True
            is_dropped = drop_tombstones and entry.stored.value is None
            return last.get(entry.stored.key) == entry.offset and not is_dropped

        self.entries = [entry for entry in self.entries if stays(entry)]

    def delete_before(self, offset: int) -> None:
        """Delete what lies below an offset, which becomes the low watermark."""
        self.low = max(self.low, min(offset, self.end))
        self.entries = [entry for entry in self.entries if entry.offset >= self.low]
