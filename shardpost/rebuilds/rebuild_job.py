"""The Spark job `rebuild_tables`, as commands and DAGs submit it."""

from shardpost.installation import Installation
from shardpost.spark.job_spec import JobSpec


def _records(installation: Installation) -> int:
    """Count the records of all histories, for a run that makes tables of them."""
    from shardpost.delta import snapshots, table_log
    from shardpost.delta.query import table_errors
    from shardpost.holders.model.view_tables import INPUTS
    from shardpost.rebuilds import store
    from shardpost.rebuilds.model.rebuild import State

    with table_errors():
        rebuild, newest = store.current(installation.tables), snapshots.newest(installation.tables)
        if newest is None or not (rebuild is None or rebuild.state is State.BUILDING):
            return 0
        histories = (one.history for one in INPUTS.values())
        there = [history for history in histories if history.name in newest.tables]
        files = (
            table_log.rows(installation.tables, newest.located(t), newest.tables[t.name])
            for t in there
        )
        return sum(sum(rows.values()) for rows in files)


REBUILD_TABLES = JobSpec("rebuild_tables", _records, has_own_class_archive=True)
