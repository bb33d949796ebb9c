"""A snapshot: one consistent view of all tables, at known offsets."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from shardpost.errors import ShardpostError
from shardpost.kafka.offset_ranges import Offsets


@dataclass(frozen=True)
class Counts:
    """In the view: open positions, clients that hold, positions they hold, rejected records."""

    positions: int = 0
    holders: int = 0
    held: int = 0
    rejected: int = 0

    def in_words(self) -> str:
        """Return them as one line."""
        return (
            f"{self.positions} open positions, {self.holders} clients hold {self.held},"
            f" {self.rejected} records rejected in all"
        )


@dataclass(frozen=True)
class Snapshot:
    """One committed row of the table `snapshots`.

    `tables` is {name: version}; `shards` is how many partitions `share-holders` has, for good.
    `topic_ids` is {topic: Kafka's id} of the topics that were read, as far as they are known.
    `generations` is {input: how many times its topic was recreated}; 0 where it is not there.
    """

    number: int
    committed_at: datetime
    looked_at: datetime
    end_offsets: Offsets
    tables: Mapping[str, int]
    counts: Counts
    code_version: str
    run: str
    country: str
    shards: int
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    generations: Mapping[str, int] = field(default_factory=dict)

    def require_shards(self, shards: int) -> None:
        """Raise ShardpostError if the number of partitions of `share-holders` was changed."""
        if shards != self.shards:
            raise ShardpostError(
                f"share-holders has {shards} partitions, but had {self.shards} at snapshot"
                f" {self.number}: clients would move to other partitions, and readers would see"
                " them in both. The number must not be changed: set SHARDPOST_TOPIC_SHARE_HOLDERS"
                " to a topic of its own and SHARDPOST_TABLES to a new folder, and compact again"
            )

    def with_looked_at(
        self, at: datetime, topic_ids: Mapping[str, str] | None = None
    ) -> "Snapshot":
        """Return the same view, found at that time to be up to date; never an earlier time.

        `topic_ids` are added where none was known: another one, of a topic that was recreated,
        belongs to a snapshot that has read the new topic.
        """
        known = {**(topic_ids or {}), **self.topic_ids}
        return replace(self, looked_at=max(at, self.looked_at), topic_ids=known)

    def as_json(self) -> dict[str, Any]:
        """Return the snapshot in the contract's form."""
        return {
            "snapshot": self.number,
            "committed_at": self.committed_at.isoformat(),
            "looked_at": self.looked_at.isoformat(),
            "end_offsets": {
                topic: {str(partition): end for partition, end in partitions.items()}
                for topic, partitions in self.end_offsets.items()
            },
            "tables": dict(self.tables),
            "positions": self.counts.positions,
            "holders": self.counts.holders,
            "rejected": self.counts.rejected,
        }
