"""How much a compaction would read now, known before its JVM is started."""

from shardpost.adapters import kafka, snapshots
from shardpost.domain.offsets import ranges_to_read
from shardpost.domain.topics import INPUTS
from shardpost.errors import ShardpostError
from shardpost.settings import Settings

# From so many records on, the optimising compiler pays.
MANY = 200_000


def is_long(settings: Settings) -> bool:
    """Tell whether a compaction has that much to do; False where nobody can say."""
    names = [settings.topic(topic.name) for topic in INPUTS]
    try:
        last = snapshots.newest(settings)
        marks = kafka.watermarks(settings, kafka.partition_counts(settings, names), committed=True)
        ranges = ranges_to_read(last.end_offsets if last else {}, marks)
    except ShardpostError:
        return False  # the job says what is wrong
    return sum(one.until - one.first for one in ranges) >= MANY
