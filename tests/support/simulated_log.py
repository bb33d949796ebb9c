"""A partition's log as Kafka keeps it: segments, their deletion, and compaction with tombstones.

By UnifiedLog and LogCleaner of Kafka 4: whole segments are deleted from the beginning while the
newest timestamp in them is older than `retention.ms`, or what comes after them has
`retention.bytes`; the cleaner takes segments that are closed and older than
`min.compaction.lag.ms`; a tombstone leaves `delete.retention.ms` after it was first cleaned.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

RECORD_BYTES = 100


class Kept(NamedTuple):
    """A record in the log, with the key that it is of; times in milliseconds."""

    offset: int
    timestamp: int
    key: int
    is_tombstone: bool


@dataclass
class Segment:
    began: int  # when it was made, by the broker's clock
    records: list[Kept] = field(default_factory=list)

    @property
    def newest(self) -> int:
        return max((one.timestamp for one in self.records), default=self.began)

    @property
    def size(self) -> int:
        return RECORD_BYTES * len(self.records)


@dataclass
class SimulatedLog:
    """One partition; `low` and `high` are its watermarks, `deleted` and `expired` what it lost.

    What compaction removes because a later record of the key is there is in neither.
    """

    segment_ms: int
    segment_bytes: int
    time_ms: int | None = None
    limit: int | None = None
    lag_ms: int = 0
    tombstones_ms: int = 0
    is_compacted: bool = False
    low: int = 0
    high: int = 0
    segments: list[Segment] = field(default_factory=list)
    horizons: dict[int, int] = field(default_factory=dict)
    deleted: dict[int, int] = field(default_factory=dict)  # {offset of a record: when}
    expired: dict[int, int] = field(default_factory=dict)  # {offset of a tombstone: when}

    def append(self, now: int, timestamp: int, key: int, *, tombstone: bool = False) -> None:
        last = self.segments[-1] if self.segments else None
        if (
            last is None
            or last.size + RECORD_BYTES > self.segment_bytes
            or now - last.began >= self.segment_ms
        ):
            last = Segment(now)
            self.segments.append(last)
        last.records.append(Kept(self.high, timestamp, key, tombstone))
        self.high += 1

    def marker(self) -> None:
        """End a transaction: an offset without a record."""
        self.high += 1

    @property
    def records(self) -> list[Kept]:
        return [one for segment in self.segments for one in segment.records]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def delete(self, now: int) -> None:
        """Do what the retention thread does."""
        while self.segments and self._is_deletable(self.segments[0], now):
            gone = self.segments.pop(0)
            self.deleted |= {one.offset: now for one in gone.records}
            rest = self.records
            self.low = rest[0].offset if rest else self.high

    def _is_deletable(self, segment: Segment, now: int) -> bool:
        by_time = self.time_ms is not None and now - segment.newest > self.time_ms
        by_size = self.limit is not None and self.size - segment.size >= self.limit
        return by_time or by_size

    def clean(self, now: int) -> None:
        """Do what the cleaner does, to all that may be cleaned."""
        if not self.is_compacted:
            return
        taken = []
        for segment in self.segments[:-1]:
            if segment.newest > now - self.lag_ms:
                break
            taken.append(segment)
        last = {one.key: one.offset for segment in taken for one in segment.records}
        for segment in taken:
            segment.records = [one for one in segment.records if self._stays(one, last, now)]

    def _stays(self, one: Kept, last: dict[int, int], now: int) -> bool:
        if last[one.key] != one.offset:
            return False
        if not one.is_tombstone:
            return True
        if now <= self.horizons.setdefault(one.offset, now + self.tombstones_ms):
            return True
        self.expired[one.offset] = now
        return False
