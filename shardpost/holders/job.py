"""The Spark job `compact_positions`, as commands and DAGs submit it."""

from dataclasses import replace

from shardpost.settings import Settings
from shardpost.spark.job_spec import JobSpec


def _unread_records(settings: Settings) -> int:
    from shardpost.delta import snapshots
    from shardpost.holders import inputs

    return inputs.unread_originals(settings, snapshots.newest(settings))


def _all_records(settings: Settings) -> int:
    from shardpost.holders import inputs

    return inputs.unread_originals(settings, None)


COMPACT_POSITIONS = JobSpec("compact_positions", _unread_records, has_own_class_archive=True)
# The same job, to reconcile: it reads all that the inputs hold.
RECONCILE_POSITIONS = replace(COMPACT_POSITIONS, unread_records=_all_records)
