"""What a run is to read, as values: what it starts from, and what it finds unread."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from shardpost.delta.snapshot import Snapshot
from shardpost.holders.model.compacted_topics import (
    Compaction,
    ReadTopic,
    require_tombstones_kept,
)
from shardpost.kafka.offset_ranges import OffsetRange, Offsets, total_size


@dataclass(frozen=True)
class Look:
    """A look at the topics: at that time, after the snapshot `last`, to reconcile or not.

    `counts` is {topic: partitions}, of retry topics too.
    """

    at: datetime
    last: Snapshot | None
    counts: Mapping[str, int]
    reconcile: bool = False

    @property
    def read(self) -> Offsets:
        """How far the topics were read."""
        return self.last.end_offsets if self.last else {}

    @property
    def known_ids(self) -> Mapping[str, str]:
        """The ids of the topics that were read."""
        return self.last.topic_ids if self.last else {}

    def never_read(self, topics: Collection[str]) -> dict[str, str]:
        """Return what is wrong with each input that the last snapshot is not of, in words."""
        if self.last is None:
            return {}
        of = f"snapshot {self.last.number} is of {', '.join(sorted(self.read))}"
        return {
            topic: f"topic {topic} was never read: {of} (correct the setting that names it, if that"
            " is not meant)"
            for topic in topics
            if topic not in self.read
        }

    def generations(self, restarted: Collection[str]) -> dict[str, int]:
        """Return {input: how many times it was recreated}, with those that now are."""
        known = dict(self.last.generations if self.last else {})
        return known | {name: known.get(name, 0) + 1 for name in restarted}

    def closes_at(self, retention: timedelta, *, restarted: bool) -> datetime:
        """Return the time from which on a reconciliation has what it closes closed.

        Until the last look it was open, for all that is known. But where a tombstone was lost, that
        was written before its retention began to run.
        """
        looked_at = self.last.looked_at if self.last else self.at
        return looked_at if restarted else min(looked_at, self.at - retention)


@dataclass(frozen=True)
class Reconciliation:
    """What a run needs that closes what the inputs do not hold any more.

    `visible` are all offsets of the inputs up to the ends of the run; `closes_at` is {input: the
    timestamp of the records that close}.
    """

    visible: list[OffsetRange]
    closes_at: Mapping[str, datetime]


@dataclass(frozen=True)
class Unread:
    """The ranges that no snapshot has read yet, and what else a run needs to know of its topics.

    `ends` and `topic_ids` are of all topics that are read, the ids as far as Kafka gives any.
    `generations` says how many times the topic of an input was recreated (record_order.py), by the
    input's name in the contract: the topic may have another one now. `compactions` says how Kafka
    compacts each input. `reconciliation` is None unless one was asked for.
    """

    ranges: list[OffsetRange]
    ends: Offsets
    topic_ids: Mapping[str, str]
    generations: Mapping[str, int]
    compactions: Mapping[str, Compaction]
    reconciliation: Reconciliation | None = None

    @property
    def size(self) -> int:
        """How many offsets are read."""
        visible = self.reconciliation.visible if self.reconciliation else []
        return total_size(self.ranges) + total_size(visible)

    def of_topic(self, topic: str) -> list[OffsetRange]:
        """Return the ranges of a topic."""
        return [range_ for range_ in self.ranges if range_.topic == topic]

    def visible_of_topic(self, topic: str) -> list[OffsetRange]:
        """Return all offsets of an input, if it is reconciled."""
        visible = self.reconciliation.visible if self.reconciliation else []
        return [range_ for range_ in visible if range_.topic == topic]

    def require_tombstones_kept(
        self, records: Mapping[str, int], looked_at: datetime, now: datetime
    ) -> None:
        """Raise TombstonesLostError if tombstones after `looked_at` may be missing.

        `records` is {input: how many its ranges hold}. A run that reconciles misses none.
        """
        if self.reconciliation is None:
            read = [
                ReadTopic(topic, total_size(self.of_topic(topic)), count)
                for topic, count in records.items()
            ]
            require_tombstones_kept(read, self.compactions, looked_at, now)

    def may_have_lost(self, looked_at: datetime, now: datetime) -> list[str]:
        """Return the inputs with new offsets whose tombstones may be gone by now."""
        if self.reconciliation is not None:
            return []
        return [
            topic
            for topic, compaction in self.compactions.items()
            if self.of_topic(topic) and compaction.may_have_lost(looked_at, now)
        ]
