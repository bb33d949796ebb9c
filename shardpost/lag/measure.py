"""How far every reader is behind, and when it loses data.

Readers are the consumer groups, and ours that keep their offsets in tables: compactions and the
table of letters. The offsets that a compaction commits to its group are for other tools, and those
that writers of ours keep in Kafka as bookmarks are nobody's position.
"""

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from shardpost.dead_letters import letter_topics
from shardpost.dead_letters.foreign_intake import GROUP as INTAKE
from shardpost.delta import snapshots
from shardpost.delta.query import table_errors
from shardpost.errors import ShardpostError
from shardpost.holders.compaction import COMPACTION_GROUP as COMPACTION
from shardpost.holders.rejected_letters import GROUP as REJECTED
from shardpost.holders.share_holders_topic import PUBLISH_GROUP as PUBLISHED
from shardpost.installation import Installation
from shardpost.kafka.groups import OFFSETS_TOPIC, groups
from shardpost.kafka.kafka import FIRST_ANSWER_SECONDS, Kafka
from shardpost.kafka.offsets import beginnings, endings
from shardpost.kafka.reading import BulkReading
from shardpost.kafka.records import OffsetRange, TopicPartition
from shardpost.kafka.topic_metadata import changed_topics, topic_configs, topic_ids
from shardpost.lag.model.partition import Partition, SeenRecord, Stretch, retention_of
from shardpost.lag.model.time_to_loss import (
    Clear,
    Lag,
    Position,
    Selection,
    assess,
    by_time_to_loss,
    unknown,
)
from shardpost.lag.offset_expiry import offset_expiry
from shardpost.lag.partition_sizes import Partitions, with_sizes
from shardpost.run_requests.request_topics import GROUP as DISPATCH
from shardpost.topics.guards import GROUP as OWNER
from shardpost.wording import some_of

LETTERS_TABLE = "shardpost-letters-table"
OWN = (COMPACTION, LETTERS_TABLE)
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# Groups of ours whose offsets are bookmarks, which nothing reads by. Others may begin like them.
NOTES = re.compile(rf"{PUBLISHED}|{OWNER}|{REJECTED}-{_UUID}")
OWN_READERS = frozenset({*OWN, INTAKE, DISPATCH})


def own_positions(
    installation: Installation,
    counts: Mapping[str, int],
    only: Collection[str],
    problems: list[str],
) -> list[Position]:
    """Return how far our own readers are, in topics with so many partitions.

    Of all, or only of groups of these names. What cannot be read becomes a problem.
    """
    readers: dict[str, Callable[[], Iterator[Position]]] = {
        COMPACTION: lambda: _compaction(installation, counts),
        LETTERS_TABLE: lambda: (
            Position(LETTERS_TABLE, *at) for at in letter_topics.next_offsets(installation).items()
        ),
    }
    found: list[Position] = []
    for name, positions in readers.items():
        if only and name not in only:
            continue
        try:
            with table_errors():
                found += positions()
        except ShardpostError as error:
            problems.append(f"the committed offsets of {name} are unknown: {error}")
    return found


def _compaction(installation: Installation, counts: Mapping[str, int]) -> Iterator[Position]:
    last = snapshots.newest(installation.tables)
    if last is None:
        return
    there = [topic for topic in last.end_offsets if topic in counts]
    recreated = changed_topics(last.topic_ids, topic_ids(installation.kafka, there))
    for topic in there:
        read = last.end_offsets[topic]
        for partition in range(counts[topic]):
            at = TopicPartition(topic, partition)
            was_recreated = topic in recreated
            yield Position(COMPACTION, at, read.get(partition, 0), was_recreated=was_recreated)


NO_TOPIC = "Kafka has no such partition"


def measure(
    installation: Installation,
    now: datetime,
    selection: Selection | None = None,
    *,
    clear: Clear | None = None,
) -> Lag:
    """Return how far readers are behind.

    `now` is compared with the timestamps of records, so with other machines' clocks. `clear` is
    what earlier measurements found. KafkaUnreachableError if Kafka does not answer.
    """
    wanted, now_ms = selection or Selection(), int(now.timestamp() * 1000)
    problems: list[str] = []
    known = installation.kafka.metadata(FIRST_ANSWER_SECONDS).topics
    counts = {topic: len(one.partitions) for topic, one in known.items()}
    positions, others = _positions(installation, counts, wanted, problems)
    clear = clear or {}
    positions = [
        replace(position, clear_until=clear.get((position.group, position.partition), 0))
        for position in positions
    ]
    failed: dict[TopicPartition, str] = {}
    of_all = {position.partition for position in positions}
    there = {one for one in of_all if one.partition < counts.get(one.topic, 0)}
    partitions, measured = partitions_now(installation.kafka, there, failed), time.monotonic()
    # Where they go on; one that is beyond the end has all before it.
    starts: dict[TopicPartition, set[int]] = {partition: set() for partition in partitions}
    for position in positions:
        found = partitions.get(position.partition)
        if found is not None and position.committed is not None:
            is_beyond = position.committed > found.high
            starts[position.partition].add(found.low if is_beyond else position.committed)
    partitions = with_unread(installation.kafka, partitions, starts)
    partitions = with_sizes(installation.kafka, partitions, positions, now_ms, measured, problems)
    by_reason: dict[str, list[str]] = {}
    for partition, reason in sorted(failed.items()):
        by_reason.setdefault(reason, []).append(str(partition))
    problems += [f"{some_of(named)}: {reason}" for reason, named in by_reason.items()]
    rows = [
        assess(position, partitions[position.partition], now_ms)
        if position.partition in partitions
        else unknown(position, failed.get(position.partition, NO_TOPIC))
        for position in positions
    ]
    unread = {
        f"{row.topic}[{row.partition}]"
        for row in rows
        if row.records_behind and row.seconds_behind is None and row.seconds_to_loss is None
    }
    if unread:
        problems.append(f"{some_of(sorted(unread))}: unread records could not be read in time")
    return Lag(sorted(rows, key=by_time_to_loss), problems, others)


def _positions(
    installation: Installation, counts: Mapping[str, int], wanted: Selection, problems: list[str]
) -> tuple[list[Position], list[str]]:
    own = own_positions(installation, counts, wanted.groups, problems)
    found = groups(installation.kafka, wanted.groups)
    problems += [f"group {name}: {reason}" for name, reason in found.failed.items()]
    others = [
        replace(
            group,
            committed={at: one for at, one in group.committed.items() if wanted.has(at.topic)},
            assigned=frozenset(at for at in group.assigned if wanted.has(at.topic)),
        )
        for group in found.groups
        if group.name not in OWN and not NOTES.fullmatch(group.name)
    ]
    expiry = offset_expiry(installation.kafka, others, counts.get(OFFSETS_TOPIC, 0), problems)
    positions = [position for position in own if wanted.has(position.partition.topic)]
    for group in others:
        expires = expiry.get(group.name, {})
        for at, offset in sorted(group.committed.items()):
            positions.append(Position(group.name, at, offset, expires.get(at)))
        without = sorted(group.assigned - group.committed.keys())
        positions += [Position(group.name, at, None) for at in without]
    return positions, found.others


def partitions_now(
    kafka: Kafka, wanted: Collection[TopicPartition], failed: dict[TopicPartition, str]
) -> dict[TopicPartition, Partition]:
    """Return each partition as it is, without what is in it; `failed` gets why one is not known.

    Ends are asked for from the lowest to the highest, so that each is at or above the one before.
    """
    found: dict[TopicPartition, list[int]] = {partition: [] for partition in wanted}
    for ask in (beginnings, partial(endings, committed=True), partial(endings, committed=False)):
        listed = ask(kafka, [*found])
        failed |= listed.failed
        found = {
            partition: [*ends, listed.found[partition].offset]
            for partition, ends in found.items()
            if partition in listed.found
        }
    topics = {partition.topic for partition in found}
    configs = topic_configs(kafka, topics) if topics else {}
    retentions = {topic: retention_of(config) for topic, config in configs.items()}
    return {
        partition: Partition(low, stable, high, retentions[partition.topic])
        for partition, (low, stable, high) in found.items()
    }


# What is unread is read from the lowest reader of each partition on, then from the next: so many
# records at a time, and for some seconds. Where that is too little, the model takes bounds.
MOST_RECORDS = 1_000
# After that, only the lowest reader of each partition is still looked at.
LOOK_SECONDS = 2.0


def with_unread(
    kafka: Kafka, partitions: Partitions, offsets: Mapping[TopicPartition, Collection[int]]
) -> dict[TopicPartition, Partition]:
    """Return the partitions with what is before readers at these offsets."""
    found = dict(partitions)
    began = time.monotonic()
    until = began + kafka.timeout
    while ranges := _not_known(found, offsets):
        for partition, stretch in _read(kafka, found, ranges, until).items():
            found[partition] = found[partition].with_stretch(stretch)
        until = began + LOOK_SECONDS
        if time.monotonic() >= until:
            break
    return found


def _not_known(
    partitions: Partitions, offsets: Mapping[TopicPartition, Collection[int]]
) -> dict[TopicPartition, int]:
    """Return the lowest offset of each partition from which on nothing was read."""
    lowest = {}
    for partition, found in partitions.items():
        there = [one for one in offsets[partition] if not found.is_known_from(one)]
        if there:
            lowest[partition] = max(min(there), found.low)
    return lowest


def _read(
    kafka: Kafka, partitions: Partitions, starts: Mapping[TopicPartition, int], until: float
) -> dict[TopicPartition, Stretch]:
    """Return the records from there on: first the committed ones, then those after them."""
    stable = {at: (first, partitions[at].stable) for at, first in starts.items()}
    found = _stretches(kafka, stable, until, committed=True)
    pending = {
        at: (stretch.until, partitions[at].high)
        for at, stretch in found.items()
        if stretch.until >= partitions[at].stable
    }
    for at, stretch in _stretches(kafka, pending, until, committed=False).items():
        before = found[at]  # which ends where that one begins
        found[at] = Stretch(before.first, stretch.until, before.records + stretch.records)
    return found


def _stretches(
    kafka: Kafka, wanted: Mapping[TopicPartition, tuple[int, int]], until: float, *, committed: bool
) -> dict[TopicPartition, Stretch]:
    """Return a stretch of each {partition: (first, end)}; an empty one where nothing is to read."""
    ranges = [OffsetRange(*at, first, end) for at, (first, end) in wanted.items() if end > first]
    seen: dict[TopicPartition, list[SeenRecord]] = {at: [] for at in wanted}
    reading = BulkReading(kafka, ranges, committed=committed, most=MOST_RECORDS)
    for message in reading.messages(until):
        at: Any = (message.topic(), message.partition())  # equal to a TopicPartition
        offset, (_, timestamp) = message.offset() or 0, message.timestamp()
        seen[at].append(SeenRecord(offset, timestamp, message.value() is None))
    return {
        at: Stretch(first, reading.reached.get(at, first), tuple(seen[at]))
        for at, (first, _) in wanted.items()
    }
