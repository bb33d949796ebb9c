"""The Spark job `rebuild_tables`, as commands and DAGs submit it."""

from collections.abc import Sequence

from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult, JobSpec


def _records(settings: Settings) -> int:
    from shardpost.delta import snapshots
    from shardpost.rebuilds import store
    from shardpost.rebuilds.model.rebuild import State

    found, newest = store.current(settings), snapshots.newest(settings)
    is_building = newest and (found is None or found.state is State.BUILDING)
    return newest.counts.positions if newest and is_building else 0


def _if_no_spark(settings: Settings, arguments: Sequence[str]) -> JobResult | None:
    from shardpost.rebuilds.without_spark import result

    return result(settings, arguments)


REBUILD_TABLES = JobSpec(
    "rebuild_tables", _records, has_own_class_archive=True, without_spark=_if_no_spark
)
