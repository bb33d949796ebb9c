"""The Spark job `sweep_dead_letters`, as commands and DAGs submit it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult, JobSpec


@dataclass(frozen=True)
class SweepRequest:
    """One sweep, as of a time."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))


def _unread_records(settings: Settings) -> int:
    from shardpost.dead_letters.letter_topics import current_progress
    from shardpost.kafka.coordinates import total_size

    return total_size(current_progress(settings).unread)


def _if_empty(settings: Settings, _request: str) -> JobResult | None:
    from shardpost.dead_letters import letter_topics

    return letter_topics.result_if_empty(settings, SWEEP_DEAD_LETTERS.name)


SWEEP_DEAD_LETTERS = JobSpec("sweep_dead_letters", _unread_records, without_spark=_if_empty)
