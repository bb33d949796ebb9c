"""The Spark job `sweep_dead_letters`, as commands and DAGs submit it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from shardpost.installation import Installation
from shardpost.spark.job_spec import JobResult, JobSpec, request_of


@dataclass(frozen=True)
class SweepRequest:
    """One sweep, as of a time."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))


def _unread_records(installation: Installation) -> int:
    from shardpost.dead_letters.letter_topics import current_progress
    from shardpost.kafka.coordinates import total_size

    return total_size(current_progress(installation).unread)


def _if_nothing_is_due(installation: Installation, request: str) -> JobResult | None:
    from shardpost.dead_letters.quiet_sweep import result_if_nothing_is_due

    now = request_of(SweepRequest, request).now
    return result_if_nothing_is_due(installation, SWEEP_DEAD_LETTERS.name, now)


SWEEP_DEAD_LETTERS = JobSpec(
    "sweep_dead_letters", _unread_records, without_spark=_if_nothing_is_due
)
