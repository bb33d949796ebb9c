"""What is known of a Spark job before it starts."""

from collections.abc import Callable
from dataclasses import dataclass, field

from shardpost.errors import ShardpostError
from shardpost.settings import Settings

# From this many records on, the JVM's optimising compiler pays for itself.
LONG_RUN_RECORDS = 500_000


def _no_records(_settings: Settings) -> int:
    return 0


@dataclass(frozen=True)
class JobSpec:
    """One job: the stem of its file in `spark_jobs/`, which is its DAG's id too.

    `unread_records` counts what it would read now; with `has_own_class_archive` it loads half as
    many classes again as other jobs do (class_archive.py).
    """

    name: str
    # Not in the repr, whose address of a function would make each parsing a new version of a DAG.
    unread_records: Callable[[Settings], int] = field(default=_no_records, repr=False)
    has_own_class_archive: bool = False

    def is_long(self, settings: Settings) -> bool:
        """Tell whether it would read LONG_RUN_RECORDS or more; False where that cannot be known."""
        try:
            return self.unread_records(settings) >= LONG_RUN_RECORDS
        except ShardpostError:
            return False  # the job itself reports the error
