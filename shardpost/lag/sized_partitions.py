"""Partitions with a limit of their size: how large they are, and how they grow."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from shardpost.errors import ShardpostError
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.listed_offsets import endings, first_since
from shardpost.lag.model.partition import Partition
from shardpost.lag.model.position import Position
from shardpost.lag.partition_sizes import partition_sizes
from shardpost.settings import Settings

# The fastest growth within these spans counts, seconds.
SPANS = (60, 600, 3600)
LEAST_SPAN_MS = 500

Partitions = Mapping[TopicPartition, Partition]


@dataclass(frozen=True)
class SizeLook:
    """The present (ms), when ends were asked for (monotonic clock), and rates known from before.

    Rates are offsets a second, by which a partition grows at least.
    """

    now_ms: int
    measured: float
    rates: Mapping[TopicPartition, float]


def with_sizes(
    settings: Settings,
    partitions: Partitions,
    positions: Collection[Position],
    look: SizeLook,
    problems: list[str],
) -> dict[TopicPartition, Partition]:
    """Return the partitions, those with a limit and an unread record with their sizes and growth.

    Sizes that nobody tells become problems.
    """
    limited = _limited(partitions, positions)
    if not limited:
        return dict(partitions)
    try:
        sizes = partition_sizes(settings, limited)
    except ShardpostError as error:
        problems.append(f"{error}; what retention.bytes deletes is left out")
        return dict(partitions)
    if missing := limited.keys() - sizes.keys():
        named = ", ".join(map(str, sorted(missing)))
        problems.append(f"the sizes of {named}, and so what retention.bytes deletes of them")
    growth = _growth(settings, limited, look)
    known = {
        at: replace(found, size=sizes.get(at), growth=growth[at]) for at, found in limited.items()
    }
    return {**partitions, **known}


def _limited(
    partitions: Partitions, positions: Collection[Position]
) -> dict[TopicPartition, Partition]:
    return {
        position.partition: found
        for position in positions
        if (found := partitions.get(position.partition)) is not None
        and found.retention.size is not None
        and position.committed is not None
        and found.unread(position.committed).first is not None
    }


def _growth(
    settings: Settings, partitions: Partitions, look: SizeLook
) -> dict[TopicPartition, float]:
    """Return by how many offsets a second each partition grows: the highest rate that is known.

    That is by Kafka's index of times, which knows timestamps, and by the ends since a moment ago,
    which are right whatever the timestamps are.
    """
    found = {at: look.rates.get(at, 0.0) for at in partitions}
    for span in SPANS:
        for at, since in first_since(settings, partitions, look.now_ms - 1000 * span).found.items():
            if since.offset >= 0:
                milliseconds = max(LEAST_SPAN_MS, look.now_ms - since.timestamp)
                rate = 1000 * (partitions[at].high - since.offset) / milliseconds
                found[at] = max(found[at], rate)
    ends = endings(settings, partitions, committed=False).found
    seconds = max(LEAST_SPAN_MS / 1000, time.monotonic() - look.measured)
    for at, (end, _) in ends.items():
        found[at] = max(found[at], (end - partitions[at].high) / seconds)
    return found
