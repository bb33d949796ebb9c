"""A partition as it was found, and what a reader at some offset has before it."""

from bisect import bisect_right
from dataclasses import dataclass, replace

from shardpost.lag.model.retention import Retention
from shardpost.lag.model.stretch import SeenRecord, Stretch


@dataclass(frozen=True)
class Unread:
    """What a reader has before it; `records` is a number of offsets, or of records if `is_exact`.

    `first` is the next record. Where that was not read (`first_is_bound`), it is one before the
    reader, so an older one unless timestamps are out of order. None: there is none, or nothing is
    known. `newest_before` is the latest timestamp (ms) that is known of the records up to `first`.
    `tombstone` is the oldest one that is known. Up to the offset `looked_until` all records are.
    """

    records: int
    is_exact: bool
    first: SeenRecord | None
    first_is_bound: bool
    newest_before: int | None
    tombstone: SeenRecord | None
    looked_until: int


@dataclass(frozen=True)
class Partition:
    """A partition: low watermark, last stable offset, high watermark, and what was read of it.

    `size` is in bytes, `growth` in offsets a second; None where they are not known. Stretches are
    by their first offsets; what is in them behind `stable` may still be aborted.
    """

    low: int
    stable: int
    high: int
    retention: Retention
    size: int | None = None
    growth: float | None = None
    stretches: tuple[Stretch, ...] = ()

    def unread(self, offset: int) -> Unread:
        """Return what a reader has before it that reads on from an offset."""
        offset = max(offset, self.low)
        if offset >= self.high:
            return Unread(0, True, None, False, None, None, self.high)
        stretch = self._nearest(offset)
        behind = self.high - offset
        if stretch is None:
            return Unread(behind, False, None, False, None, None, offset)
        count = len(stretch.records)
        if not stretch.answers(offset, self.high):
            known = stretch.records[-1] if count else None
            newest = stretch.newest_until(count)
            return Unread(behind, False, known, known is not None, newest, None, offset)
        at = stretch.index(offset)
        is_whole = stretch.until >= self.high
        return Unread(
            count - at if is_whole else behind,
            is_whole,
            stretch.records[at] if at < count else None,
            False,
            stretch.newest_until(min(at + 1, count)),
            stretch.oldest_tombstone(at),
            stretch.until,
        )

    def with_stretch(self, stretch: Stretch) -> "Partition":
        """Return the partition with one more stretch."""
        stretches = sorted([*self.stretches, stretch], key=lambda one: one.first)
        return replace(self, stretches=tuple(stretches))

    def is_known_from(self, offset: int) -> bool:
        """Tell whether the next record from an offset on was read, or that there is none."""
        offset = max(offset, self.low)
        stretch = self._nearest(offset)
        return offset >= self.high or (stretch is not None and stretch.answers(offset, self.high))

    def _nearest(self, offset: int) -> Stretch | None:
        """Return the last stretch that begins at or below an offset."""
        at = bisect_right(self.stretches, offset, key=lambda one: one.first)
        return self.stretches[at - 1] if at else None
