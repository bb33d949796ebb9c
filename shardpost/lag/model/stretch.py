"""What was read of a partition: some offsets, and the records at them."""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple


class SeenRecord(NamedTuple):
    """One record; `timestamp` in milliseconds since 1970, any 64 bits, negative for none."""

    offset: int
    timestamp: int
    is_tombstone: bool


@dataclass(frozen=True)
class Stretch:
    """The offsets first … until - 1 with all records at them, by offset.

    An offset without one is that of a marker, an aborted record, or one that compaction removed.
    """

    first: int
    until: int
    records: tuple[SeenRecord, ...]

    def index(self, offset: int) -> int:
        """Return how many records are below an offset."""
        return bisect_left(self.records, (offset,))

    def newest_until(self, index: int) -> int | None:
        """Return the latest timestamp of the first so many records."""
        return self._newest[index - 1] if index else None

    def oldest_tombstone(self, index: int) -> SeenRecord | None:
        """Return the tombstone with the earliest timestamp of all but the first so many records."""
        return self._oldest[-1 - index] if index < len(self.records) else None

    def answers(self, offset: int, end: int) -> bool:
        """Tell whether it says what the first record from an offset on is, if there is any."""
        if not self.first <= offset <= self.until:
            return False
        return self.until >= end or bool(self.records and self.records[-1].offset >= offset)

    def joined(self, later: "Stretch") -> "Stretch":
        """Return this one and the one that begins where it ends."""
        return Stretch(self.first, later.until, self.records + later.records)

    @cached_property
    def _newest(self) -> list[int]:
        return list(accumulate((one.timestamp for one in self.records), max))

    @cached_property
    def _oldest(self) -> list[SeenRecord | None]:
        """The oldest tombstone of the last one, two, … records."""
        found: list[SeenRecord | None] = []
        oldest: SeenRecord | None = None
        for one in reversed(self.records):
            if one.is_tombstone and (oldest is None or one.timestamp < oldest.timestamp):
                oldest = one
            found.append(oldest)
        return found
