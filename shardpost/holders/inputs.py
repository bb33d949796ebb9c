"""What a compaction reads: the new records of its inputs, and of the topics of their retries."""

import logging
from typing import NamedTuple

from shardpost.delta.snapshot import Snapshot
from shardpost.holders.model.offset_ranges import ranges_to_read, retries_to_read
from shardpost.kafka import offsets
from shardpost.kafka.offset_ranges import OffsetRange, Offsets, ends
from shardpost.settings import Settings
from shardpost.topics import declared

log = logging.getLogger(__name__)


class Unread(NamedTuple):
    """Ranges that no snapshot has read yet, and the ends of all topics that are read."""

    ranges: list[OffsetRange]
    ends: Offsets


def input_topics(settings: Settings) -> list[str]:
    """Return the names of the inputs in this installation."""
    return [settings.topic(topic.name) for topic in declared.INPUTS]


def retry_topics(settings: Settings) -> list[str]:
    """Return where letters of the inputs go to be tried again: one topic, or some by setting."""
    return sorted(set(map(settings.retry_rules.retry_topic, input_topics(settings))))


def unread(settings: Settings, counts: dict[str, int], last: Snapshot | None) -> Unread:
    """Return what came after that snapshot; `counts` are partitions, of retry topics too.

    Ends of retries are asked for first: the origin of a retry is below the ends of the inputs then.
    """
    read = last.end_offsets if last else {}
    of_retries = offsets.watermarks(
        settings, {topic: counts[topic] for topic in retry_topics(settings)}, committed=True
    )
    of_inputs = offsets.watermarks(
        settings, {topic: counts[topic] for topic in input_topics(settings)}, committed=True
    )
    ranges = ranges_to_read(read, of_inputs)
    retries, lost = retries_to_read(read, of_retries)
    for place in lost:
        log.warning("%s are gone unread: a correction among them has no effect", place)
    return Unread(ranges + retries, ends({**of_inputs, **of_retries}))


def unread_originals(settings: Settings, last: Snapshot | None) -> int:
    """Return how many offsets of the inputs came after that snapshot."""
    counts = offsets.partition_counts(settings, input_topics(settings))
    marks = offsets.watermarks(settings, counts, committed=True)
    ranges = ranges_to_read(last.end_offsets if last else {}, marks)
    return sum(one.size for one in ranges)
