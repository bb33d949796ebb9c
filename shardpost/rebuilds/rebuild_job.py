"""The Spark job `rebuild_tables`, as commands and DAGs submit it."""

from shardpost.settings import Settings
from shardpost.spark.job_spec import JobSpec


def _records(settings: Settings) -> int:
    """Count the records of all histories, for a run that makes tables of them."""
    from shardpost.delta import snapshots, table_log
    from shardpost.delta.query import table_errors
    from shardpost.holders.model.view_tables import INPUTS
    from shardpost.rebuilds import store
    from shardpost.rebuilds.model.rebuild import State

    with table_errors():
        rebuild, newest = store.current(settings), snapshots.newest(settings)
        if newest is None or not (rebuild is None or rebuild.state is State.BUILDING):
            return 0
        histories = (tables.history for tables in INPUTS.values())
        there = [history for history in histories if history.name in newest.tables]
        files = (table_log.rows(settings, newest.located(t), newest.tables[t.name]) for t in there)
        return sum(sum(rows.values()) for rows in files)


REBUILD_TABLES = JobSpec("rebuild_tables", _records, has_own_class_archive=True)
