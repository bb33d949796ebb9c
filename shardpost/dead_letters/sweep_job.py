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
    from shardpost.dead_letters.letters_table_offsets import unread

    return sum(range_.size for range_ in unread(settings))


def _if_empty(settings: Settings, _request: str) -> JobResult | None:
    from shardpost.dead_letters import letter_topics

    return letter_topics.result_if_empty(settings, SWEEP_DEAD_LETTERS.name)


SWEEP_DEAD_LETTERS = JobSpec("sweep_dead_letters", _unread_records, without_spark=_if_empty)
