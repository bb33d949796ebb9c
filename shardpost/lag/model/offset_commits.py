"""The records of `__consumer_offsets`: when was committed, and since when groups are empty.

Source: Kafka's group coordinator: OffsetCommitKey, OffsetCommitValue (versions 0 to 4),
GroupMetadataKey and GroupMetadataValue (versions 0 to 4), StreamsGroupMemberMetadataKey.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from shardpost.kafka.coordinates import TopicPartition

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
            if value := self.values.get(version.to_bytes(2) + topic):
                return _commit_time(_Reader(value))
        return None

    def empty_since(self, group: str) -> int | None:
        """Return since when a group that had members has none, in ms; None for any other.

        UnknownFormatError for a record that is not understood.
        """
        value = self.values.get(GROUP_KEY.to_bytes(2) + _string(group))
        return _state_time(_Reader(value)) if value else None

    def has_streams_members(self, group: str) -> bool:
        """Tell whether it is a group of Kafka Streams' protocol (KIP-1071) that has a member."""
        member = STREAMS_MEMBER_KEY.to_bytes(2) + _string(group)
        return any(key.startswith(member) for key in self.values)


@lru_cache(maxsize=4096)  # the same groups and topics again and again
def _string(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2) + data


def _commit_time(value: "_Reader") -> int:
    version = value.version()
    value.number(8)  # the offset
    if version >= WITH_EPOCH:
        value.number(4)
    value.skip_string(version)  # metadata
    return value.number(8)


def _state_time(value: "_Reader") -> int | None:
    version = value.version()
    has_protocol = value.skip_string(version)
    value.number(4)  # generation
    value.skip_string(version)  # protocol
    value.skip_string(version)  # leader
    at = value.number(8) if version >= WITH_STATE_TIME else -1
    return at if has_protocol and at >= 0 else None


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
