"""A partition as it was found, what Kafka deletes of it, and what is unread from an offset on."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from shardpost.holders.model.lost_records import Compaction, compaction_of


@dataclass(frozen=True)
class Retention:
    """How a topic is cleaned; `time_ms` and `size` (bytes) are None where there is no limit."""

    compaction: Compaction
    time_ms: int | None
    size: int | None

    @property
    def tombstones_ms(self) -> int:
        """For how long Kafka keeps a tombstone, at least."""
        kept = self.compaction.lag + self.compaction.retention
        return int(kept.total_seconds() * 1000)


def retention_of(config: Mapping[str, str | None]) -> Retention:
    """Return what is deleted of a topic of that configuration; what it does not say is no limit.

    `retention.ms` and `retention.bytes` are of no effect without the policy `delete`.
    """
    compaction = compaction_of(config)
    deletes = "delete" in compaction.policy
    limits = (int(config.get(name) or -1) for name in ("retention.ms", "retention.bytes"))
    time_ms, size = (limit if deletes and limit >= 0 else None for limit in limits)
    return Retention(compaction, time_ms, size)


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
        """Return the latest timestamp of the first `index` records."""
        return self._newest[index - 1] if index else None

    def oldest_tombstone(self, index: int) -> SeenRecord | None:
        """Return the tombstone with the earliest timestamp, without the first `index` records."""
        return self._oldest[-1 - index] if index < len(self.records) else None

    def answers(self, offset: int, end: int) -> bool:
        """Tell whether it says what the first record from an offset on is, if there is any."""
        if not self.first <= offset <= self.until:
            return False
        return self.until >= end or bool(self.records and self.records[-1].offset >= offset)

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
        """Return what is unread for a reader at an offset."""
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
        at = bisect_right(self.stretches, offset, key=lambda one: one.first)
        return self.stretches[at - 1] if at else None
