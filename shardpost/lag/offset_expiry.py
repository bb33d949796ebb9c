"""When Kafka forgets the offsets of groups that have no member.

That is `offsets.retention.minutes` after the group became empty, and for a group that never had one
after each commit. Kafka does not say since when; its own topic `__consumer_offsets` does.
"""

import time
from collections.abc import Collection, Mapping
from contextlib import suppress

from confluent_kafka import KafkaException

from shardpost.errors import ShardpostError
from shardpost.kafka.coordinates import OffsetRange, TopicPartition
from shardpost.kafka.groups import OFFSETS_TOPIC, Group
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import beginnings, endings
from shardpost.kafka.partitioning import partition_of_group
from shardpost.kafka.reading import BulkReading
from shardpost.kafka.topic_metadata import cluster_metadata
from shardpost.lag.model.offset_commits import OffsetCommits, UnknownFormatError
from shardpost.topics.observation import brokers_described

# Of each of its partitions the newest so many offsets are read.
MOST_OFFSETS = 500_000
READ_SECONDS = 20.0

RETENTION = "offsets.retention.minutes"

# {group: {partition: when its offset is forgotten, ms}}
Expiry = Mapping[str, Mapping[TopicPartition, int]]


def offset_expiry(
    kafka: Kafka, groups: Collection[Group], partitions: int, problems: list[str]
) -> Expiry:
    """Return when the offsets of groups without members expire.

    `partitions` is how many `__consumer_offsets` has. What is not known becomes a problem.
    """
    empty = [group for group in groups if not group.has_members and group.committed]
    if not empty:
        return {}
    if not partitions:
        problems.append(
            f"when groups' offsets expire is not known: requires permission Read on {OFFSETS_TOPIC}"
        )
        return {}
    try:
        retention_ms = _retention_ms(kafka)
        commits, is_whole = _read(kafka, empty, partitions)
    except (KafkaException, ShardpostError) as error:
        why = error.args[0].str() if isinstance(error, KafkaException) else error
        problems.append(f"when groups' offsets expire is not known: {why}")
        return {}
    empty = [group for group in empty if not commits.has_streams_members(group.name)]
    found = {group.name: _of_group(group, commits, retention_ms) for group in empty}
    missing = [group.name for group in empty if len(found[group.name]) < len(group.committed)]
    if missing:
        part = "" if is_whole else f" (of {OFFSETS_TOPIC} only the newest offsets were read)"
        problems.append(f"when offsets of {', '.join(missing)} expire is not known{part}")
    return found


def _of_group(group: Group, commits: OffsetCommits, retention_ms: int) -> dict[TopicPartition, int]:
    found = {}
    with suppress(UnknownFormatError):
        since = commits.empty_since(group.name)
        for partition in group.committed:
            at = commits.committed_at(group.name, partition) if since is None else since
            if at is not None:
                found[partition] = at + retention_ms
    return found


def _retention_ms(kafka: Kafka) -> int:
    """Return the least `offsets.retention.minutes` of all brokers that answer, in ms.

    ShardpostError if none does.
    """
    brokers = cluster_metadata(kafka).brokers
    described = brokers_described(kafka, brokers).values()
    minutes = [int(one.entries[RETENTION][0] or 0) for one in described if one.entries]
    if not minutes:
        raise ShardpostError("; ".join(sorted({one.why for one in described})))
    return 60_000 * min(minutes)


def _read(kafka: Kafka, groups: Collection[Group], partitions: int) -> tuple[OffsetCommits, bool]:
    """Return the commits of groups, and whether all that there is was read."""
    numbers = {partition_of_group(group.name, partitions) for group in groups}
    homes = [TopicPartition(OFFSETS_TOPIC, number) for number in sorted(numbers)]
    lows, highs = beginnings(kafka, homes), endings(kafka, homes, committed=False)
    ranges = {
        home: OffsetRange(*home, max(lows.found[home].offset, high - MOST_OFFSETS), high)
        for home, (high, _) in highs.found.items()
        if home in lows.found
    }
    reading = BulkReading(kafka, ranges, committed=True, most=MOST_OFFSETS)
    commits = OffsetCommits()
    is_whole = len(ranges) == len(homes)
    for message in reading.messages(time.monotonic() + min(READ_SECONDS, kafka.timeout)):
        commits.add(message.key() or b"", message.value())
    for home, range_ in ranges.items():
        was_cut = range_.first > lows.found[home].offset
        is_whole = is_whole and not was_cut and reading.reached[home] >= range_.until
    return commits, is_whole
