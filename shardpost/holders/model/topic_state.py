"""What a run will read: from the ends of the last snapshot to the current ends."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from shardpost.delta.snapshot import NEVER, IncompleteLook, Snapshot
from shardpost.errors import NEEDS_ATTENTION, ShardpostError
from shardpost.holders.model.lost_records import (
    Compaction,
    Reconciliation,
    require_all_partitions,
    require_no_gaps,
    require_only_compacted,
    require_records,
    require_tombstones_kept,
)
from shardpost.kafka.records import (
    OffsetRange,
    Offsets,
    OpenTransaction,
    TopicPartition,
    Watermarks,
    total_size,
)
from shardpost.values.holding_rule import Rule

log = logging.getLogger(__name__)


class Gaps(NamedTuple):
    """What is wrong with the inputs' offsets, in words, by topic.

    `deleted`: records were deleted before being read. `shorter`: a partition ends before the offset
    up to which it was read. `absent`: a partition that was read is not there any more.
    """

    deleted: dict[str, list[str]]
    shorter: dict[str, list[str]]
    absent: dict[str, list[str]]


def gaps(read: Offsets, watermarks: Watermarks) -> Gaps:
    """Return what prevents the tables from catching up: holders would be wrong."""
    result = Gaps({}, {}, {})
    for at, first, low, end in _unread(read, watermarks):
        if first < low:
            text = f"{OffsetRange(*at, first, low)} were deleted before being read"
            result.deleted.setdefault(at.topic, []).append(text)
        elif first > end:
            text = f"{at}: read up to {first}, but it ends at {end}"
            result.shorter.setdefault(at.topic, []).append(text)
    for topic, partitions in watermarks.items():
        for partition in read.get(topic, {}).keys() - partitions.keys():
            text = f"{TopicPartition(topic, partition)} was read, but does not exist"
            result.absent.setdefault(topic, []).append(text)
    return result


def ranges_to_read(read: Offsets, watermarks: Watermarks) -> list[OffsetRange]:
    """Return the non-empty ranges after what was read, as far as they are there.

    A partition that was never read is read from its low watermark.
    """
    return [
        OffsetRange(*at, max(first, low), end)
        for at, first, low, end in _unread(read, watermarks)
        if max(first, low) < end
    ]


def retries_to_read(
    read: Offsets, watermarks: Watermarks
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Return the non-empty ranges of retry topics after what was read, and the deleted ones.

    Kafka deletes retries by age, and most are of other origins: what was deleted stops nothing. A
    topic that was deleted and recreated is read from its low watermark.
    """
    ranges, deleted = [], []
    for at, first, low, end in _unread(read, watermarks):
        if first < low:
            deleted.append(OffsetRange(*at, first, low))
        begin = first if low <= first <= end else low
        if begin < end:
            ranges.append(OffsetRange(*at, begin, end))
    return ranges, deleted


def _unread(
    read: Offsets, watermarks: Watermarks
) -> Iterator[tuple[TopicPartition, int, int, int]]:
    """Yield each partition, the first offset that was not read, and its watermarks."""
    for topic, partitions in watermarks.items():
        for partition, (low, end) in partitions.items():
            first = read.get(topic, {}).get(partition, low)
            yield TopicPartition(topic, partition), first, low, end


class UnreadableRecordsError(ShardpostError):
    """Records of an input that are needed cannot be read yet."""

    exit_code = NEEDS_ATTENTION


def require_readable(topics: Collection[str], found: Sequence[OpenTransaction]) -> None:
    """Raise UnreadableRecordsError, naming all, if one of the topics has an open transaction."""
    if hidden := [str(open_) for open_ in found if open_.begins.topic in topics]:
        raise UnreadableRecordsError(
            "a reconciliation closes keys that are not in the inputs, but records behind an open"
            f" transaction cannot be read: {'; '.join(hidden)}. Nothing was changed. Wait until it"
            " ends, or end it (docs/compaction.md, An open transaction), then reconcile again"
        )


@dataclass(frozen=True)
class TopicState:
    """What a look at the topics found then, after the snapshot `last`; to reconcile or not.

    `counts` is {topic: partitions}, of retry topics too. `ahead` is the `looked_at` of the snapshot
    as it was stored, if that is in the future: then it is unknown (Snapshot.as_known). `ids` are
    those of the topics, as far as Kafka gives any, and `changed` says which are other topics than
    those that were read. `configured` says how Kafka compacts each input now.
    """

    at: datetime
    last: Snapshot | None
    counts: Mapping[str, int]
    reconcile: bool = False
    ahead: datetime | None = None
    ids: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict)
    configured: Mapping[str, Compaction] = field(default_factory=dict)

    @property
    def read(self) -> Offsets:
        """How far the topics were read."""
        return self.last.end_offsets if self.last else {}

    @property
    def known_ids(self) -> Mapping[str, str]:
        """The ids of the topics that were read."""
        return self.last.topic_ids if self.last else {}

    def strict(self) -> dict[str, Compaction]:
        """Return how Kafka may have compacted the inputs since the last look, by how it does now.

        Of each setting the stricter of the two counts, then and now, where both are known.
        """
        then = self.last.cleaning if self.last else {}
        return {topic: one.stricter(then.get(topic)) for topic, one in self.configured.items()}

    def times(self, unread: "Unread") -> tuple[datetime, IncompleteLook | None]:
        """Return `looked_at` of what this look found, and what is incomplete about it.

        With open transactions that is when everything up to the present ends was there; mostly as
        it was. As soon as all below an earlier look's high watermarks is read, it is that look's.
        """
        known = self.last.looked_at if self.last else NEVER
        if not unread.open_transactions:
            return max(known, self.at), None
        earlier = self.last.incomplete if self.last else None
        if earlier and earlier.is_read_up_to(unread.ends):
            known, earlier = max(known, earlier.at), None
        noted = (earlier.at, earlier.ends) if earlier else (self.at, unread.high)
        return known, IncompleteLook(*noted, read_at=self.at)

    def noted(self, view: Snapshot, unread: "Unread", setting: Rule) -> Snapshot:
        """Return a snapshot with all that this look found; `setting` is the rule of the settings.

        Whether or not it has found anything new. An id of a topic is kept where Kafka gives none.
        """
        looked_at, incomplete = self.times(unread)
        known = {topic: id_ for topic, id_ in self.known_ids.items() if topic in unread.ends}
        # Behind an open transaction, what was in force since the last look counts too.
        cleaned = unread.compactions if unread.open_transactions else self.configured
        return replace(
            view,
            looked_at=looked_at,
            incomplete=incomplete,
            end_offsets=unread.ends,
            topic_ids=known | dict(self.ids),
            generations=unread.generations,
            cleaning={topic: one.cleaning for topic, one in cleaned.items()},
            set_country=setting.name if setting != view.rule else None,
        )

    def generations(self, restarted: Collection[str]) -> dict[str, int]:
        """Return {input: how many times it was recreated}, with those that now are."""
        known = dict(self.last.generations if self.last else {})
        return known | {name: known.get(name, 0) + 1 for name in restarted}

    def restarted(self, of_inputs: Watermarks) -> set[str]:
        """Return the inputs that are other topics than those that were read.

        ShardpostError if there is one, or anything else is wrong, and the look is not to reconcile.
        """
        changed = self._changed(of_inputs)
        if self.last is not None:
            why = (
                f"was never read: snapshot {self.last.number} is from"
                f" {', '.join(sorted(self.read))} (correct the setting that names it, if"
                " unintended)"
            )
            changed |= {name: f"topic {name} {why}" for name in of_inputs if name not in self.read}
        wrong_offsets = gaps(self.read_of_others(changed), of_inputs)
        require_all_partitions(wrong_offsets.absent, {*self.known_ids} & {*self.ids})
        if self.reconcile:
            require_only_compacted(self.configured)
        else:
            wrong = [
                *wrong_offsets.deleted.items(),
                *wrong_offsets.shorter.items(),
                *wrong_offsets.absent.items(),
            ]
            problems = [*changed.values(), *(text for _, texts in wrong for text in texts)]
            concerned = {*changed, *(topic for topic, _ in wrong)}
            require_no_gaps(problems, {topic: self.configured[topic] for topic in concerned})
        restarted = {*changed, *wrong_offsets.shorter, *wrong_offsets.absent}
        require_records(restarted, self.read, of_inputs)
        for topic in sorted(restarted):
            log.warning("%s was replaced or truncated: it is read from its beginning", topic)
        return restarted

    def _changed(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: self.changed[topic] for topic in topics if topic in self.changed}

    def retries(self, of_retries: Watermarks) -> list[OffsetRange]:
        """Return the ranges of retry topics; of one that was recreated, all of it."""
        changed = self._changed(of_retries)
        ranges, deleted = retries_to_read(self.read_of_others(changed), of_retries)
        for text in changed.values():
            log.warning("%s: it is read from its beginning", text)
        for lost in deleted:
            log.warning(
                "%s were deleted before being read: corrections in them have no effect", lost
            )
        return ranges

    def reconciliation(
        self,
        of_inputs: Watermarks,
        compactions: Mapping[str, Compaction],
        restarted: Collection[str],
    ) -> Reconciliation | None:
        """Return what is to be reconciled; None if nothing is: before the first snapshot, too."""
        if not self.reconcile or self.last is None:
            return None
        # Until the last look what it closes was open, for all that is known. But where a tombstone
        # was lost, that was written before its retention began to run.
        is_known = self.last.looked_at != NEVER
        known = min(self.at, self.last.looked_at if is_known else self.last.committed_at)
        closes_at = {
            topic: known if topic in restarted else min(known, self.at - compaction.retention)
            for topic, compaction in compactions.items()
        }
        return Reconciliation(ranges_to_read({}, of_inputs), closes_at)

    def rule(self, setting: Rule, *, changed: bool) -> Rule:
        """Return who holds from now on, by the settings; `changed` confirms it."""
        return setting if changed or self.last is None else self.last.rule_now(setting)

    def read_of_others(self, topics: Collection[str]) -> Offsets:
        """Return how far the topics that are not among these were read."""
        return {topic: at for topic, at in self.read.items() if topic not in topics}


@dataclass(frozen=True)
class Unread:
    """The ranges that no snapshot has read yet, and what else a run needs to know of its topics.

    `ends` are of all topics that are read. `generations` says how many times the topic of an input
    was recreated (record_order.py), by the input's name in the contract: the topic may have another
    one now. `compactions` says how Kafka compacts each input, or did at the last look
    (TopicState.strict).
    `reconciliation` is None unless one was asked for. `high` are the high watermarks at the time of
    the look; `open_transactions` are what keeps `ends` below them, and `gone` retry topics that
    were read and are not there any more. `read` says how far the topics were read before, without
    inputs that are read anew.
    """

    ranges: list[OffsetRange]
    ends: Offsets
    generations: Mapping[str, int]
    compactions: Mapping[str, Compaction]
    reconciliation: Reconciliation | None = None
    high: Offsets = field(default_factory=dict)
    open_transactions: Sequence[OpenTransaction] = ()
    gone: Collection[str] = ()
    read: Offsets = field(default_factory=dict)

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
        self, records: Mapping[str, int], last: Snapshot, now: datetime
    ) -> None:
        """Raise TombstonesLostError if tombstones after the last look may be missing.

        `records` is {input: how many its ranges hold}. A run that reconciles misses none.
        """
        if self.reconciliation is None:
            read = {
                topic: (total_size(self.of_topic(topic)), count) for topic, count in records.items()
            }
            require_tombstones_kept(read, self.compactions, last, now)

    def may_have_lost(self, last: Snapshot, now: datetime) -> list[str]:
        """Return the inputs with new offsets whose tombstones may be gone by now."""
        return [
            topic
            for topic, compaction in self.compactions.items()
            if self.reconciliation is None
            and self.of_topic(topic)
            and compaction.may_have_lost(last, now)
        ]
