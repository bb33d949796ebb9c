"""An error of Spark's, many lines long, as the one line that a person needs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from shardpost.errors import ShardpostError
from shardpost.weekly_email.model.iso_week import IsoWeek

_CAUSE = re.compile(r"Caused by: |(\w+\.)*\w+(Error|Exception): ")
LONGEST_CAUSE = 1000


@contextmanager
def spark_errors_of(week: IsoWeek) -> Iterator[None]:
    """Turn an error of Spark's into a ShardpostError that says the innermost cause."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise ShardpostError(
            f"weekly_email {week}: Spark failed: {_cause(error)};"
            " clients that were not mailed stay open: run again"
        ) from None


def _cause(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    causes = [line for line in lines if _CAUSE.match(line)]
    return (causes or lines[:1])[-1][:LONGEST_CAUSE]
