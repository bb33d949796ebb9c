"""When Kafka forgets the offsets of groups that have no member.

That is `offsets.retention.minutes` after the group became empty, and for a group that never had one
after each commit. Kafka does not say since when; its own topic `__consumer_offsets` does. How its
records are written, Kafka's group coordinator says: OffsetCommitKey, OffsetCommitValue (versions 0
to 4), GroupMetadataKey and GroupMetadataValue (versions 0 to 4), StreamsGroupMemberMetadataKey.
"""

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

from confluent_kafka import KafkaException

from shardpost.errors import ShardpostError
from shardpost.kafka.groups import OFFSETS_TOPIC, Group
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import beginnings, endings
from shardpost.kafka.reading import BulkReading
from shardpost.kafka.records import OffsetRange, TopicPartition, partition_of_group
from shardpost.topics.observation import brokers_described

OFFSET_KEYS = (1, 0)
GROUP_KEY = 2
STREAMS_MEMBER_KEY = 19
FLEXIBLE = 4  # from that version of values on, strings have lengths of variable size
WITH_EPOCH = 3
WITH_STATE_TIME = 2


class UnknownFormatError(Exception):
    """A record of another form than those that are known."""


@dataclass
class OffsetCommits:
    """The last value of each key, undecoded: of a million, few are asked for."""

    values: dict[bytes, bytes] = field(default_factory=dict)

    def add(self, key: bytes, value: bytes | None) -> None:
        """Take in a record, in the order of its partition."""
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def committed_at(self, group: str, partition: TopicPartition) -> int | None:
        """Return when an offset was committed, in ms; None if that is not known.

        UnknownFormatError for a record that is not understood.
        """
        topic = _string(group) + _string(partition.topic) + partition.partition.to_bytes(4)
        for version in OFFSET_KEYS:
            if found := self.values.get(version.to_bytes(2) + topic):
                value = _Reader(found)
                of_value = value.version()
                value.number(8)  # the offset
                if of_value >= WITH_EPOCH:
                    value.number(4)
                value.skip_string(of_value)  # metadata
                return value.number(8)
        return None

    def empty_since(self, group: str) -> int | None:
        """Return since when a group that had members has none, in ms; None for any other.

        UnknownFormatError for a record that is not understood.
        """
        found = self.values.get(GROUP_KEY.to_bytes(2) + _string(group))
        if not found:
            return None
        value = _Reader(found)
        version = value.version()
        has_protocol = value.skip_string(version)
        value.number(4)  # generation
        value.skip_string(version)  # protocol
        value.skip_string(version)  # leader
        at = value.number(8) if version >= WITH_STATE_TIME else -1
        return at if has_protocol and at >= 0 else None

    def has_streams_members(self, group: str) -> bool:
        """Tell whether it is a group of Kafka Streams' protocol (KIP-1071) that has a member."""
        member = STREAMS_MEMBER_KEY.to_bytes(2) + _string(group)
        return any(key.startswith(member) for key in self.values)


@lru_cache(maxsize=4096)  # the same groups and topics again and again
def _string(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2) + data


@dataclass
class _Reader:
    """Kafka's primitive types, one after the other; UnknownFormatError behind the end."""

    data: bytes
    at: int = 0

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), signed=True)

    def version(self) -> int:
        """Read the version of a value; UnknownFormatError for one that is not known."""
        found = self.number(2)
        if not 0 <= found <= FLEXIBLE:
            raise UnknownFormatError
        return found

    def skip_string(self, version: int) -> bool:
        """Skip a string as values of that version have it; tell whether it has a character."""
        size = self._varint() - 1 if version >= FLEXIBLE else self.number(2)
        self._take(max(size, 0))
        return size > 0

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._take(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7

    def _take(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        if len(found) < size:
            raise UnknownFormatError
        self.at += size
        return found


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
    try:
        commits, is_whole = _read(kafka, empty, partitions)
        retention_ms = _retention_ms(kafka)
    except (KafkaException, ShardpostError) as error:
        why = error.args[0].str() if isinstance(error, KafkaException) else error
        problems.append(f"it is unknown when groups' offsets expire: {why}")
        return {}
    empty = [group for group in empty if not commits.has_streams_members(group.name)]
    found = {group.name: _of_group(group, commits, retention_ms) for group in empty}
    missing = [group.name for group in empty if len(found[group.name]) < len(group.committed)]
    if missing:
        part = "" if is_whole else f" (only the newest offsets of {OFFSETS_TOPIC} were read)"
        problems.append(f"it is unknown when offsets of {', '.join(missing)} expire{part}")
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
    brokers = kafka.metadata().brokers
    described = brokers_described(kafka, brokers).values()
    minutes = [int(one.entries[RETENTION][0] or 0) for one in described if one.entries]
    if not minutes:
        raise ShardpostError("; ".join(sorted({one.why for one in described})))
    return 60_000 * min(minutes)


def _read(kafka: Kafka, groups: Collection[Group], partitions: int) -> tuple[OffsetCommits, bool]:
    """Return the commits of groups, and whether all that there is was read."""
    if not partitions:
        raise ShardpostError(f"requires permission Read on {OFFSETS_TOPIC}")
    numbers = {partition_of_group(group.name, partitions) for group in groups}
    homes = [TopicPartition(OFFSETS_TOPIC, number) for number in sorted(numbers)]
    lows, highs = beginnings(kafka, homes), endings(kafka, homes, committed=False)
    ranges = [
        OffsetRange(*home, max(lows.found[home].offset, high - MOST_OFFSETS), high)
        for home, (high, _) in highs.found.items()
        if home in lows.found
    ]
    reading = BulkReading(kafka, ranges, committed=True, most=MOST_OFFSETS)
    commits = OffsetCommits()
    is_whole = len(ranges) == len(homes)
    for message in reading.messages(time.monotonic() + min(READ_SECONDS, kafka.timeout)):
        commits.add(message.key() or b"", message.value())
    for range_ in ranges:
        home = range_.topic_partition
        was_cut = range_.first > lows.found[home].offset
        is_whole = is_whole and not was_cut and reading.reached[home] >= range_.until
    return commits, is_whole
