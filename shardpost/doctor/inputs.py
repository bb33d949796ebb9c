"""What the next compaction would read, or why it would refuse."""

from datetime import datetime

from shardpost.delta import snapshots
from shardpost.doctor.finding import Finding, ok, refused
from shardpost.errors import ShardpostError
from shardpost.holders.inputs import input_topics, retry_topics, unread
from shardpost.holders.model.unread import Look
from shardpost.kafka.offset_ranges import total_size
from shardpost.kafka.offsets import partition_counts
from shardpost.settings import Settings


def check(settings: Settings, now: datetime) -> Finding:
    """Look for new records as a compaction does; nothing is read of them."""
    try:
        count = _unread(settings, now)
    except ShardpostError as problem:
        return refused("inputs", problem)
    return ok("inputs", f"{count} offsets that no snapshot has yet")


def _unread(settings: Settings, now: datetime) -> int:
    holders = settings.topic("share-holders")
    topics = [*input_topics(settings), *retry_topics(settings), holders]
    counts = partition_counts(settings, topics)
    last = snapshots.newest(settings)
    if last:
        last.require_shards(counts[holders])
    return total_size(unread(settings, Look(now, last, counts, reconcile=False)).ranges)
