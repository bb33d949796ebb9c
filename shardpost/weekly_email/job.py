"""The Spark job `weekly_email`, as commands and DAGs submit it."""

from collections.abc import Sequence

from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult, JobSpec


def _if_nothing_is_left(settings: Settings, arguments: Sequence[str]) -> JobResult | None:
    from shardpost.weekly_email.arguments import parser, request_of
    from shardpost.weekly_email.finished_week import result_without_spark

    return result_without_spark(request_of(parser().parse_args(arguments)), settings)


WEEKLY_EMAIL = JobSpec("weekly_email", without_spark=_if_nothing_is_left)
