"""The Spark job `rebuild_tables`, as commands and DAGs submit it."""

from collections.abc import Sequence

from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult, JobSpec


def _records(settings: Settings) -> int:
    """Count the records of all histories, for a run that makes tables of them."""
    from shardpost.delta import snapshots, table_log
    from shardpost.holders.model.tables import INPUTS
    from shardpost.rebuilds import store
    from shardpost.rebuilds.model.rebuild import State

    found, newest = store.current(settings), snapshots.newest(settings)
    if newest is None or not (found is None or found.state is State.BUILDING):
        return 0
    histories = [tables.history for tables in INPUTS.values()]
    there = {newest.located(one): newest.tables[one.name] for one in histories}
    return sum(sum(table_log.rows(settings, *one).values()) for one in there.items())


def _if_no_spark(settings: Settings, arguments: Sequence[str]) -> JobResult | None:
    from shardpost.rebuilds.without_spark import result

    return result(settings, arguments)


REBUILD_TABLES = JobSpec(
    "rebuild_tables", _records, has_own_class_archive=True, without_spark=_if_no_spark
)
