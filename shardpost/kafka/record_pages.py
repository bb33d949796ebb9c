"""Records of a topic, page by page for a person: a limited number, within some seconds.

A page says for each partition where the next one begins, so that nothing is left out or shown twice
wherever the time was over. Records of several partitions are put in the order of their times as far
as that of each partition allows.
"""

import heapq
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from shardpost.errors import UsageError
from shardpost.kafka import offsets
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.reading import BulkReading, record_of
from shardpost.kafka.records import OffsetRange, Record, TopicPartition
from shardpost.kafka.topic_metadata import partition_counts

# A page ends after so long, and after so many bytes; one record is given however large it is.
MOST_SECONDS = 2.0
MOST_BYTES = 16 << 20
# The offset of each partition.
Places = Mapping[int, int]


class Bounds(NamedTuple):
    """Of a partition: the first offset kept, the last stable offset, and the high watermark."""

    low: int
    stable: int
    high: int


def bounds_of(kafka: Kafka, topic: str, partition: int | None) -> dict[int, Bounds]:
    """Return the bounds of a partition of a topic, or of all.

    ShardpostError if there is no such topic, UsageError if it has no such partition.
    """
    count = partition_counts(kafka, [topic])[topic]
    if partition is not None and partition >= count:
        raise UsageError(f"{topic}[{partition}]: expected a partition from 0 to {count - 1}")
    chosen = range(count) if partition is None else [partition]
    asked = [TopicPartition(topic, number) for number in chosen]

    def ask() -> dict[int, Bounds]:
        low = offsets.beginnings(kafka, asked).offsets
        high = offsets.endings(kafka, asked, committed=False).offsets
        stable = offsets.endings(kafka, asked, committed=True).offsets
        return {at.partition: Bounds(low[at], min(stable[at], high[at]), high[at]) for at in asked}

    return kafka.with_leaders(ask)


def from_time(
    kafka: Kafka, topic: str, bounds: Mapping[int, Bounds], at: datetime
) -> dict[int, int]:
    """Return of each partition the offset of the first record of that time or a later one."""
    asked = [TopicPartition(topic, number) for number in bounds]
    return {
        one.partition: bounds[one.partition].high if offset < 0 else offset
        for one, offset in offsets.starts_since(kafka, asked, at).items()
    }


def before(bounds: Mapping[int, Bounds], places: Places, most: int) -> dict[int, int]:
    """Return the places `most` offsets earlier in all, spread over partitions that have any."""
    own = {number: bounds[number] for number in places}
    back = max(1, -(-most // max(1, sum(places[n] > one.low for n, one in own.items()))))
    return {number: max(one.low, places[number] - back) for number, one in own.items()}


@dataclass(frozen=True)
class RecordPage:
    """Some records, where the next page begins, and whether there is one.

    `is_whole` is false if the time or the bytes were over before the page was full, or all was
    read.
    """

    records: Sequence[Record]
    next: Places
    has_more: bool
    is_whole: bool


@dataclass(frozen=True)
class Wanted:
    """Which committed records: from some places on, of some keys or all."""

    topic: str
    places: Places
    keys: Collection[bytes] | None = None
    most: int = 100


def read_page(kafka: Kafka, wanted: Wanted, bounds: Mapping[int, Bounds]) -> RecordPage:
    """Return a page of records; KafkaUnreachableError if Kafka cannot be read."""
    ends = {n: bounds[n].stable for n in wanted.places}
    ranges = [
        OffsetRange(wanted.topic, number, first, ends[number])
        for number, first in wanted.places.items()
        if first < ends[number]
    ]
    most = wanted.most if wanted.keys is None else sys.maxsize
    reading = BulkReading(kafka, ranges, committed=True, most=most)
    found, is_over = _read(reading, wanted)
    shown = [*islice(heapq.merge(*found.values(), key=attrgetter("timestamp")), wanted.most)]
    counts = dict.fromkeys(found, 0)
    for record in shown:
        counts[record.partition] += 1
    following = dict(wanted.places)
    for partition, reached in reading.reached.items():
        own, count = found.get(partition.partition, []), counts.get(partition.partition, 0)
        following[partition.partition] = own[count].offset if count < len(own) else reached
    has_more = any(following[number] < end for number, end in ends.items())
    is_whole = len(shown) >= wanted.most or not has_more or not is_over
    return RecordPage(shown, following, has_more, is_whole)


def _read(reading: BulkReading, wanted: Wanted) -> tuple[dict[int, list[Record]], bool]:
    """Return the records of each partition, and whether time or bytes were over first."""
    found: dict[int, list[Record]] = {}
    count = size = 0
    until = time.monotonic() + MOST_SECONDS
    with closing(reading.messages(until)) as messages:
        for message in messages:
            if wanted.keys is not None and message.key() not in wanted.keys:
                continue
            record = record_of(message)
            found.setdefault(record.partition, []).append(record)
            count, size = count + 1, size + len(record.value or b"") + len(record.key or b"")
            is_full = wanted.keys is not None and count >= wanted.most
            if is_full or size >= MOST_BYTES:
                return found, not is_full
    return found, time.monotonic() >= until


def newest_records(kafka: Kafka, topic: str, most: int) -> Sequence[Record]:
    """Return the newest committed records of a topic, spread over its partitions."""
    bounds = bounds_of(kafka, topic, None)
    places = before(bounds, {n: one.stable for n, one in bounds.items()}, most)
    return read_page(kafka, Wanted(topic, places, most=most), bounds).records
