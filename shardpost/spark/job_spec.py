"""What is known of a Spark job before it starts."""

from collections.abc import Callable
from dataclasses import dataclass

from shardpost.errors import ShardpostError
from shardpost.settings import Settings

# From so many records on, the JVM's optimising compiler pays.
MANY = 500_000


def _nothing(_settings: Settings) -> int:
    return 0


@dataclass(frozen=True)
class JobSpec:
    """One job: the stem of its file in `spark_jobs/`, which is its DAG's id too.

    `unread_records` says how much it would read now; `has_own_class_archive`: it loads half as many
    classes again as other jobs (class_archive.py).
    """

    name: str
    unread_records: Callable[[Settings], int] = _nothing
    has_own_class_archive: bool = False

    def is_long(self, settings: Settings) -> bool:
        """Tell whether it would read MANY records or more; False where that cannot be known."""
        try:
            return self.unread_records(settings) >= MANY
        except ShardpostError:
            return False  # the job says what is wrong
