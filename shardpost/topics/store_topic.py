"""A topic that is a store: what its records say is written nowhere else.

Kafka must keep the last record of every key, so such a topic is compacted and nothing more. Then no
record is ever deleted from its beginning, and its low watermarks stay where they are.
"""

from dataclasses import dataclass

from shardpost.errors import ShardpostError


@dataclass(frozen=True)
class StoreTopic:
    """A store as it is now; `low` and `high` are the watermarks of its partitions.

    `topic_id` is empty where the broker gives none.
    """

    name: str
    topic_id: str
    cleanup_policy: str
    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return len(self.low)

    def require_compacted(self) -> None:
        """Refuse a topic of which Kafka may delete the last record of a key."""
        if self.cleanup_policy != "compact":
            raise ShardpostError(
                f"topic {self.name}: expected cleanup.policy=compact and nothing else, found"
                f" {self.cleanup_policy!r}: Kafka deletes records that are needed. Set it with"
                f" `kafka-configs.sh --alter --entity-type topics --entity-name {self.name}"
                " --add-config cleanup.policy=compact`"
            )

    def what_is_lost(self, known: "KnownStore") -> str | None:
        """Return what was lost of what is known to have been there, or None."""
        is_told = bool(self.topic_id and known.topic_id)
        if is_told and self.topic_id != known.topic_id:
            return (
                f"it was deleted and created again: its topic id is {self.topic_id}, and was"
                f" {known.topic_id}"
            )
        if self.partitions != len(known.low):
            return f"it has {self.partitions} partitions, and had {len(known.low)}"
        for partition in range(self.partitions):
            low, first = self.low[partition], known.low[partition]
            if low > first:
                return (
                    f"of partition {partition} the records from {first} to {low - 1} were deleted"
                )
            high, end = self.high[partition], known.high[partition]
            if high < end:
                return f"partition {partition} ends at {high}, and ended at {end}"
        return None


@dataclass(frozen=True)
class KnownStore:
    """What is known of a store from before: since `low`, and up to `high`, it had records."""

    topic_id: str
    low: tuple[int, ...]
    high: tuple[int, ...]

    def merged(self, other: "KnownStore | None") -> "KnownStore":
        """Return what is known with what another process wrote down meanwhile.

        That of another topic stays as it is: who wrote it has looked at the topic since.
        """
        if other is None:
            return self
        if (other.topic_id, len(other.low)) != (self.topic_id, len(self.low)):
            return other
        low = tuple(map(min, self.low, other.low))
        return KnownStore(self.topic_id, low, tuple(map(max, self.high, other.high)))
