"""The Spark job `compact_positions`, as commands and DAGs submit it."""

from shardpost.settings import Settings
from shardpost.spark.job_spec import JobSpec


def _unread_records(settings: Settings) -> int:
    from shardpost.delta import snapshots
    from shardpost.holders import inputs

    return inputs.unread_originals(settings, snapshots.newest(settings))


COMPACT_POSITIONS = JobSpec("compact_positions", _unread_records, has_own_class_archive=True)
