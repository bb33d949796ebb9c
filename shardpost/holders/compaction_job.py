"""The Spark job `compact_positions`, as commands and DAGs submit it."""

from dataclasses import dataclass
from datetime import datetime

from shardpost.installation import Installation
from shardpost.spark.job_spec import JobResult, JobSpec, request_of


@dataclass(frozen=True)
class Follow:
    """A run that stays and follows the inputs: until that time, or until it is stopped.

    Turns begin at least `every` so many seconds apart.
    """

    until: datetime
    every: float = 1.0

    def __str__(self) -> str:
        return f"until {self.until:%Y-%m-%d %H:%M:%S} UTC, every {self.every:g} s"


@dataclass(frozen=True)
class CompactionRequest:
    """One run; `reconcile`: what the inputs do not hold any more is closed.

    With `follow` the run follows the inputs; what else is asked for counts for its first turn.

    A person says that another country than the last one is meant (`country_changed`), that so many
    are gone (`accept_drop`), or that this installation is to own the topics from now on
    (`take_over`).
    """

    reconcile: bool = False
    country_changed: bool = False
    accept_drop: bool = False
    take_over: bool = False
    follow: Follow | None = None


def _unread_records(installation: Installation) -> int:
    from shardpost.delta import snapshots
    from shardpost.holders import inputs

    return inputs.Inputs(installation).unread_originals(snapshots.newest(installation.tables))


def _all_records(installation: Installation) -> int:
    from shardpost.holders import inputs

    return inputs.Inputs(installation).unread_originals(None)


def _if_nothing_new(installation: Installation, request: str) -> JobResult | None:
    from shardpost.holders import results

    asked = request_of(CompactionRequest, request)
    if asked.follow:
        return None
    return results.result_if_nothing_new(
        installation,
        COMPACT_POSITIONS.name,
        take_over=asked.take_over,
        country_changed=asked.country_changed,
    )


COMPACT_POSITIONS = JobSpec(
    "compact_positions",
    _unread_records,
    has_own_class_archive=True,
    without_spark=_if_nothing_new,
    stays=lambda request: request_of(CompactionRequest, request).follow is not None,
)
# The same job, to reconcile: it reads all that the inputs hold.
RECONCILE_POSITIONS = JobSpec("compact_positions", _all_records, has_own_class_archive=True)
