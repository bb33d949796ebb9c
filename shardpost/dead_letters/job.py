"""The Spark job `sweep_dead_letters`, as commands and DAGs submit it."""

from shardpost.settings import Settings
from shardpost.spark.job_spec import JobSpec


def _unread_records(settings: Settings) -> int:
    from shardpost.dead_letters.letters_table_offsets import unread

    return sum(range_.size for range_ in unread(settings))


SWEEP_DEAD_LETTERS = JobSpec("sweep_dead_letters", _unread_records)
