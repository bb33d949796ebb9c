"""What a compaction reads: the new records of its inputs and of their retry topics."""

import logging
from collections.abc import Collection, Mapping
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
from shardpost.kafka.topic_metadata import changed_topics, require_same_topics, topic_ids
from shardpost.settings import Settings
from shardpost.topic_names import TopicName
from shardpost.topics import declared

log = logging.getLogger(__name__)

T = TypeVar("T")


def input_topics(settings: Settings) -> list[str]:
    """Return the input topics' names in this installation."""
    return [settings.topic(topic.name) for topic in declared.INPUTS]


def retry_topics(settings: Settings) -> list[str]:
    """Return the retry topics of the inputs: one, or several by SHARDPOST_RETRY_ORIGINS."""
    return sorted(set(map(settings.retry_rules.retry_topic, input_topics(settings))))


def former_retry_topics(settings: Settings, last: Snapshot | None) -> list[str]:
    """Return retry topics that were read up to the last snapshot, and that no setting names now.

    Corrections may still be in them. In `end_offsets` the inputs come first.
    """
    read = list(last.end_offsets)[len(declared.INPUTS) :] if last else []
    return [topic for topic in read if topic not in _configured(settings)]


def look(
    settings: Settings, *, reconcile: bool = False, now: datetime | None = None
) -> tuple[Look, Unread]:
    """Look at what came after the last snapshot; errors as those of `unread`.

    ShardpostError if `share-holders` has other partitions than the snapshot has shards. The time of
    the look is before all that it asks for; a `looked_at` that is ahead of it counts as unknown.
    """
    at = now or datetime.now(UTC)
    holders, last = settings.topic("share-holders"), snapshots.newest(settings)
    counts = topic_metadata.partition_counts(
        settings,
        [*_configured(settings), holders],
        if_there=former_retry_topics(settings, last),
    )
    if last:
        last.require_shards(counts[holders])
    ahead = max(last.looked_at, last.read_at) if last and last.is_ahead(at) else None
    found = Look(at, last.as_known(at) if last else None, counts, reconcile, ahead)
    return found, unread(settings, found)


def unread(settings: Settings, look: Look) -> Unread:
    """Return what came after the last snapshot.

    ShardpostError, naming every topic concerned, if holders would be wrong: records were deleted
    before being read, or a topic is another one. A look that reconciles takes the latter as a new
    generation, and refuses topics of which Kafka deletes more than compaction does.

    The ids of topics are asked for first: `require_same` says if one was recreated since. The ends
    of retries are asked for before those of the inputs: so the origin of each is below those.
    """
    former = former_retry_topics(settings, look.last)
    gone = [topic for topic in former if topic not in look.counts]
    retries = [*retry_topics(settings), *(topic for topic in former if topic not in gone)]
    topics = input_topics(settings)
    ids = topic_ids(settings, [*topics, *retries])
    reached = stable_ends(settings, {topic: look.counts[topic] for topic in [*retries, *topics]})
    of_inputs, of_retries = _of(reached.stable, topics), _of(reached.stable, retries)
    hidden = open_transactions(settings, reached)
    if look.reconcile:
        require_readable(topics, hidden)
    compactions = _compactions(settings, topics)
    restarted = _restarted(look, ids, of_inputs, compactions)
    ranges = ranges_to_read(_without(look.read, restarted), of_inputs)
    found = Unread(
        ranges + _retries(look, ids, of_retries),
        ends_of({**of_inputs, **of_retries}),
        ids,
        look.generations({name for name, topic in _inputs(settings) if topic in restarted}),
        compactions,
        _reconciliation(look, of_inputs, compactions, restarted),
        reached.high,
        hidden,
        gone,
    )
    for name, topic in _inputs(settings):
        require_orderable(topic, found.generations.get(name, 0), found.ends)
    return found


def require_same(settings: Settings, found: Unread) -> None:
    """Raise RecreatedTopicError if a topic was deleted and recreated since it was found unread."""
    advice = "That happened while it was read: nothing was changed. Run `shardpost compact` again"
    require_same_topics(found.topic_ids, topic_ids(settings, list(found.topic_ids)), advice=advice)


def unread_originals(settings: Settings, last: Snapshot | None) -> int:
    """Return how many offsets of the inputs came after that snapshot."""
    topics = input_topics(settings)
    counts = topic_metadata.partition_counts(settings, topics)
    found = offsets.watermarks(settings, counts, committed=True)
    ranges = ranges_to_read(last.end_offsets if last else {}, found)
    return total_size(ranges)


def _compactions(settings: Settings, topics: list[str]) -> dict[str, Compaction]:
    configs = topic_configs(settings, topics)
    return {topic: compaction_of(configs[topic]) for topic in topics}


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


def _inputs(settings: Settings) -> list[tuple[TopicName, str]]:
    """Return the names of the inputs in the contract, and in this installation."""
    return [(topic.name, settings.topic(topic.name)) for topic in declared.INPUTS]


def _configured(settings: Settings) -> list[str]:
    return [*input_topics(settings), *retry_topics(settings)]


def _of(all_topics: Mapping[str, T], topics: Collection[str]) -> dict[str, T]:
    return {topic: found for topic, found in all_topics.items() if topic in topics}


def _without(read: Offsets, topics: Collection[str]) -> Offsets:
    return {topic: at for topic, at in read.items() if topic not in topics}
