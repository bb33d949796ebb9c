"""What a compaction reads: the new records of its inputs and of their retry topics."""

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.holders.model.compacted_topics import (
    Compaction,
    compaction_of,
    require_all_partitions,
    require_no_gaps,
    require_only_compacted,
    require_records,
)
from shardpost.holders.model.record_order import require_orderable
from shardpost.holders.model.unread import (
    Look,
    Reconciliation,
    Unread,
    gaps,
    ranges_to_read,
    require_readable,
    retries_to_read,
)
from shardpost.kafka import offsets, topic_metadata
from shardpost.kafka.coordinates import OffsetRange, Offsets, Watermarks, ends_of, total_size
from shardpost.kafka.reading import open_transactions, stable_ends
from shardpost.kafka.topic_configs import topic_configs
from shardpost.kafka.topic_metadata import changed_topics, require_same_topics
from shardpost.settings import Settings
from shardpost.topics import declared

log = logging.getLogger(__name__)

T = TypeVar("T")


def input_topics(settings: Settings) -> list[str]:
    """Return the input topics' names in this installation."""
    return [settings.topic(topic.name) for topic in declared.INPUTS]


def retry_topics(settings: Settings) -> list[str]:
    """Return the retry topics of the inputs: one, or several by SHARDPOST_RETRY_ORIGINS."""
    return sorted(set(map(settings.retry_rules.retry_topic, input_topics(settings))))


class Inputs:
    """The inputs of an installation and their retry topics, as Kafka has them now."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._named = {topic.name: settings.topic(topic.name) for topic in declared.INPUTS}
        self._topics = [*self._named.values()]
        self._retries = retry_topics(settings)

    def former_retries(self, last: Snapshot | None) -> list[str]:
        """Return retry topics that were read up to the last snapshot and that no setting names now.

        Corrections may still be in them. In `end_offsets` the inputs come first.
        """
        read = list(last.end_offsets)[len(declared.INPUTS) :] if last else []
        return [topic for topic in read if topic not in {*self._topics, *self._retries}]

    def look(self, *, reconcile: bool = False, now: datetime | None = None) -> tuple[Look, Unread]:
        """Look at what came after the last snapshot; errors as those of `unread`.

        ShardpostError if `share-holders` has other partitions than the snapshot has shards. The
        time of the look is before all that it asks for; a `looked_at` that is ahead of it counts
        as unknown.
        """
        at = now or datetime.now(UTC)
        holders, last = self._settings.topic("share-holders"), snapshots.newest(self._settings)
        topics = [*self._topics, *self._retries, holders]
        counts = self._counts(topics, if_there=self.former_retries(last))
        if last:
            last.require_shards(counts[holders])
        ahead = max(last.looked_at, last.read_at) if last and last.is_ahead(at) else None
        look = Look(at, last.as_known(at) if last else None, counts, reconcile, ahead)
        return look, self.unread(look)

    def unread(self, look: Look) -> Unread:
        """Return what came after the last snapshot.

        ShardpostError, naming every topic concerned, if holders would be wrong: records were
        deleted before being read, or a topic is another one. A look that reconciles takes the
        latter as a new generation, and refuses topics of which Kafka deletes more than compaction
        does.

        The ids of topics are asked for first: `require_same` says if one was recreated since. The
        ends of retries are asked for before those of the inputs: so the origin of each is below
        those.
        """
        former = self.former_retries(look.last)
        gone = [topic for topic in former if topic not in look.counts]
        retries = [*self._retries, *(topic for topic in former if topic not in gone)]
        ids = self._ids([*self._topics, *retries])
        counts = {topic: look.counts[topic] for topic in [*retries, *self._topics]}
        reached = stable_ends(self._settings, counts)
        of_inputs, of_retries = _of(reached.stable, self._topics), _of(reached.stable, retries)
        hidden = open_transactions(self._settings, reached)
        if look.reconcile:
            require_readable(self._topics, hidden)
        compactions = self._compactions()
        restarted = _restarted(look, ids, of_inputs, compactions)
        ranges = ranges_to_read(_without(look.read, restarted), of_inputs)
        generations = look.generations(
            {name for name, topic in self._named.items() if topic in restarted}
        )
        unread = Unread(
            ranges + _retries(look, ids, of_retries),
            ends_of({**of_inputs, **of_retries}),
            ids,
            generations,
            compactions,
            _reconciliation(look, of_inputs, compactions, restarted),
            reached.high,
            hidden,
            gone,
        )
        for name, topic in self._named.items():
            require_orderable(topic, generations.get(name, 0), unread.ends)
        return unread

    def require_same(self, unread: Unread) -> None:
        """Raise RecreatedTopicError if a topic was recreated since it was found unread."""
        advice = (
            "That happened while it was read: nothing was changed. Run `shardpost compact` again"
        )
        require_same_topics(unread.topic_ids, self._ids([*unread.topic_ids]), advice=advice)

    def unread_originals(self, last: Snapshot | None) -> int:
        """Return how many offsets of the inputs came after that snapshot."""
        counts = self._counts(self._topics)
        ends = offsets.watermarks(self._settings, counts, committed=True)
        return total_size(ranges_to_read(last.end_offsets if last else {}, ends))

    def _counts(self, topics: list[str], *, if_there: Sequence[str] = ()) -> dict[str, int]:
        return topic_metadata.partition_counts(self._settings, topics, if_there=if_there)

    def _ids(self, topics: list[str]) -> dict[str, str]:
        return topic_metadata.topic_ids(self._settings, topics)

    def _compactions(self) -> dict[str, Compaction]:
        configs = topic_configs(self._settings, self._topics)
        return {topic: compaction_of(configs[topic]) for topic in self._topics}


def _restarted(
    look: Look,
    ids: Mapping[str, str],
    of_inputs: Watermarks,
    compactions: Mapping[str, Compaction],
) -> set[str]:
    """Return the inputs that are other topics than those that were read.

    ShardpostError if there is one, or anything else is wrong, and the look is not to reconcile.
    """
    changed = changed_topics(look.known_ids, _of(ids, of_inputs)) | look.never_read(of_inputs)
    found = gaps(_without(look.read, changed), of_inputs)
    require_all_partitions(found.absent, {*look.known_ids} & {*ids})
    if look.reconcile:
        require_only_compacted(compactions)
    else:
        wrong = [*found.deleted.items(), *found.shorter.items(), *found.absent.items()]
        problems = [*changed.values(), *(text for _, texts in wrong for text in texts)]
        concerned = {*changed, *(topic for topic, _ in wrong)}
        require_no_gaps(problems, {topic: compactions[topic] for topic in concerned})
    restarted = {*changed, *found.shorter, *found.absent}
    require_records(restarted, look.read, of_inputs)
    for topic in sorted(restarted):
        log.warning("%s: another topic than the one that was read: a new generation", topic)
    return restarted


def _reconciliation(
    look: Look,
    of_inputs: Watermarks,
    compactions: Mapping[str, Compaction],
    restarted: Collection[str],
) -> Reconciliation | None:
    """Return what is to be reconciled; None if nothing is: before the first snapshot, too."""
    if not look.reconcile or look.last is None:
        return None
    closes_at = {
        topic: look.closes_at(compaction.retention, restarted=topic in restarted)
        for topic, compaction in compactions.items()
    }
    return Reconciliation(ranges_to_read({}, of_inputs), closes_at)


def _retries(look: Look, ids: Mapping[str, str], of_retries: Watermarks) -> list[OffsetRange]:
    """Return the ranges of retry topics; of one that was recreated, all of it."""
    changed = changed_topics(look.known_ids, _of(ids, of_retries))
    ranges, deleted = retries_to_read(_without(look.read, changed), of_retries)
    for text in changed.values():
        log.warning("%s: it is read from its beginning", text)
    for lost in deleted:
        log.warning("%s were deleted before being read: corrections in them have no effect", lost)
    return ranges


def _of(all_topics: Mapping[str, T], topics: Collection[str]) -> dict[str, T]:
    return {topic: found for topic, found in all_topics.items() if topic in topics}


def _without(read: Offsets, topics: Collection[str]) -> Offsets:
    return {topic: at for topic, at in read.items() if topic not in topics}
