"""A topic that producers with several partitioners write to, its growth, imports and runs.

Records are numbered by the model, and by its SQL in SQLite.
"""

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from shardpost.holders.model.record_order import Numbering, by_time
from shardpost.kafka.records import partition_of

Partitioner = Callable[[str, int], int]


def librdkafka(key: str, partitions: int) -> int:
    """Return where its default, consistent_random, puts a key."""
    return zlib.crc32(key.encode()) % partitions


def sarama(key: str, partitions: int) -> int:
    """Return where Sarama's default puts a key: FNV-1a, as a signed number."""
    hashed = 0x811C9DC5
    for byte in key.encode():
        hashed = (hashed ^ byte) * 0x01000193 & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >> 31 else hashed
    return abs(signed) % partitions


def first(key: str, partitions: int) -> int:
    """Return where a producer puts a key that names the partition itself."""
    del key, partitions
    return 0


@dataclass(frozen=True)
class Put:
    """A record of a key, whatever it says: a tombstone is one as well."""

    key: str
    by: Partitioner = partition_of
    at: int | None = None  # its timestamp, by default that of an honest clock


@dataclass(frozen=True)
class Imported:
    """A compaction, and the record of a key that an import writes then."""

    key: str


@dataclass(frozen=True)
class Run:
    """A compaction."""


@dataclass(frozen=True)
class Grow:
    """More partitions."""

    by: int


Event = Put | Imported | Run | Grow


@dataclass(frozen=True)
class Stored:
    """A record in its place: `nth` of all records that arrived."""

    key: str
    partition: int
    offset: int
    at: int
    nth: int


@dataclass
class Topic:
    """A topic, and what runs have read of it: `seqs` of its records, by their place."""

    partitions: int
    records: list[Stored] = field(default_factory=list)
    read: dict[int, int] = field(default_factory=dict)
    seqs: dict[tuple[int, int], int] = field(default_factory=dict)

    def happens(self, event: Event) -> None:
        match event:
            case Put(key, by, at):
                self._append(key, by(key, self.partitions), at)
            case Imported(key):
                self.run()
                known = [one for one in self.records if one.key == key]
                lies = max(known, key=self.seq).partition if known else None
                self._append(key, partition_of(key, self.partitions) if lies is None else lies)
            case Run():
                self.run()
            case Grow(by):
                self.partitions += by

    def _append(self, key: str, partition: int, at: int | None = None) -> None:
        nth, offset = len(self.records), self.ends.get(partition, 0)
        self.records.append(Stored(key, partition, offset, nth // 2 if at is None else at, nth))

    @property
    def ends(self) -> dict[int, int]:
        ends = dict.fromkeys(range(self.partitions), 0)
        for one in self.records:
            ends[one.partition] = one.offset + 1
        return ends

    @property
    def numbering(self) -> Numbering:
        return Numbering.of(0, self.read, self.ends)

    @property
    def unread(self) -> list[Stored]:
        return [one for one in self.records if (one.partition, one.offset) not in self.seqs]

    def run(self) -> None:
        self.seqs |= numbered(self.numbering, self.unread)
        self.read = self.ends

    def seq(self, record: Stored) -> int:
        return self.seqs[record.partition, record.offset]

    @property
    def latest(self) -> dict[str, int]:
        """Which of all records is the latest of each key, by what was read."""
        return {one.key: one.nth for one in sorted(self.records, key=self.seq)}

    @property
    def arrived(self) -> dict[str, int]:
        """Which one came last of each key."""
        return {one.key: one.nth for one in self.records}


def numbered(numbering: Numbering, records: Sequence[Stored]) -> dict[tuple[int, int], int]:
    """Return the numbers of records that one run reads, by the SQL that Spark is given."""
    seqs = {
        (one.partition, one.offset): numbering.seq(one.key, one.partition, one.offset)
        for one in records
    }
    if min(seqs.values(), default=numbering.of_homes) >= numbering.of_homes:
        return seqs
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE r (key TEXT, partition INT, offset INT, timestamp INT, seq INT)")
    rows = [
        (one.key, one.partition, one.offset, one.at, seqs[one.partition, one.offset])
        for one in records
    ]
    db.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?)", rows)
    sql = by_time(numbering, "true").format(records="r")
    return seqs | {(partition, offset): seq for partition, offset, seq in db.execute(sql)}


def told(partitions: int, events: Iterable[Event]) -> dict[str, int]:
    topic = Topic(partitions)
    for event in (*events, Run()):
        topic.happens(event)
    return topic.latest
