"""How much a job's JVM would read now, known before it is started."""

from shardpost.adapters import kafka, letters_table, snapshots
from shardpost.adapters.inputs import input_topics
from shardpost.domain.offsets import Range, ranges_to_read
from shardpost.errors import ShardpostError
from shardpost.settings import Settings

# From so many records on, the optimising compiler pays.
MANY = 500_000


def is_long(settings: Settings, job: str) -> bool:
    """Tell whether a job has that much to do; False where nobody can say."""
    ahead = {"compact_positions": _of_inputs, "sweep_dead_letters": letters_table.unread}
    if job not in ahead:
        return False
    try:
        ranges = ahead[job](settings)
    except ShardpostError:
        return False  # the job says what is wrong
    return sum(one.until - one.first for one in ranges) >= MANY


def _of_inputs(settings: Settings) -> list[Range]:
    last = snapshots.newest(settings)
    counts = kafka.partition_counts(settings, input_topics(settings))
    marks = kafka.watermarks(settings, counts, committed=True)
    return ranges_to_read(last.end_offsets if last else {}, marks)
