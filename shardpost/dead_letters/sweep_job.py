"""The Spark job `sweep_dead_letters`, as commands and DAGs submit it."""

from collections.abc import Sequence

from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult, JobSpec


def _unread_records(settings: Settings) -> int:
    from shardpost.dead_letters.letter_topics import current_progress
    from shardpost.kafka.coordinates import total_size

    return total_size(current_progress(settings).unread)


def _if_empty(settings: Settings, _arguments: Sequence[str]) -> JobResult | None:
    from shardpost.dead_letters import letter_topics

    return letter_topics.result_if_empty(settings, SWEEP_DEAD_LETTERS.name)


SWEEP_DEAD_LETTERS = JobSpec("sweep_dead_letters", _unread_records, without_spark=_if_empty)
