"""The Spark job `import_positions`, as the command and the DAG submit it."""

from shardpost.settings import Settings
from shardpost.spark.job_spec import JobSpec


def _open_positions(settings: Settings) -> int:
    from shardpost.delta import snapshots

    found = snapshots.newest(settings)
    return found.counts.positions if found else 0


IMPORT_POSITIONS = JobSpec("import_positions", _open_positions, more_jars=("jdbc",))
