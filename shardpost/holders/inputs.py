"""What a compaction reads: the new records of its inputs and of their retry topics."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from shardpost.delta.snapshot import Snapshot
from shardpost.holders.model.offset_ranges import ranges_to_read, retries_to_read
from shardpost.kafka import offsets
from shardpost.kafka.offset_ranges import OffsetRange, Offsets, Watermarks, ends, total_size
from shardpost.settings import Settings
from shardpost.topics import declared

log = logging.getLogger(__name__)


class Unread(NamedTuple):
    """The ranges that no snapshot has read yet, and the ends of all topics that are read."""

    ranges: list[OffsetRange]
    ends: Offsets


def input_topics(settings: Settings) -> list[str]:
    """Return the input topics' names in this installation."""
    return [settings.topic(topic.name) for topic in declared.INPUTS]


def retry_topics(settings: Settings) -> list[str]:
    """Return the retry topics of the inputs: one, or several by SHARDPOST_RETRY_ORIGINS."""
    return sorted(set(map(settings.retry_rules.retry_topic, input_topics(settings))))


def unread(settings: Settings, counts: Mapping[str, int], last: Snapshot | None) -> Unread:
    """Return what came after that snapshot; `counts` is {topic: partitions}, of retry topics too.

    The ends of retries are asked for first: so the origin of each is below the ends of the inputs.
    """
    read = last.end_offsets if last else {}
    of_retries = _watermarks(settings, counts, retry_topics(settings))
    of_inputs = _watermarks(settings, counts, input_topics(settings))
    ranges = ranges_to_read(read, of_inputs)
    retries, deleted = retries_to_read(read, of_retries)
    for lost in deleted:
        log.warning("%s were deleted before being read: corrections in them have no effect", lost)
    return Unread(ranges + retries, ends({**of_inputs, **of_retries}))


def unread_originals(settings: Settings, last: Snapshot | None) -> int:
    """Return how many offsets of the inputs came after that snapshot."""
    topics = input_topics(settings)
    found = _watermarks(settings, offsets.partition_counts(settings, topics), topics)
    ranges = ranges_to_read(last.end_offsets if last else {}, found)
    return total_size(ranges)


def _watermarks(settings: Settings, counts: Mapping[str, int], topics: list[str]) -> Watermarks:
    of_topics = {topic: counts[topic] for topic in topics}
    return offsets.watermarks(settings, of_topics, committed=True)
