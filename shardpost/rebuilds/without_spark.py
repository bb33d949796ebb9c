"""What a rebuild does where it needs no Spark: tables that are topped up are swapped at once."""

from collections.abc import Sequence
from typing import NoReturn

from shardpost.rebuilds.order import Action, order_of_arguments
from shardpost.rebuilds.run import NeedsSparkError, SparkWork, run
from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult


def result(settings: Settings, arguments: Sequence[str]) -> JobResult | None:
    """Do what the job's arguments say, and return its result; None if that needs Spark."""
    order = order_of_arguments(arguments)
    if order.action is Action.START:
        return None
    try:
        return run(order, settings, SparkWork(_needs_spark, _needs_spark))
    except NeedsSparkError:
        return None


def _needs_spark(*_: object) -> NoReturn:
    raise NeedsSparkError("there are records to be added")
