"""Spark's plans are interpreted in most tests, and made once: data of tests is small.

To compile them, and to plan again at each stage, takes longer than to run them. With `--all` one
test in eight of those with a session, by the seed, has them compiled as a run of many records has;
the jobs that tests kill, and the processes of commands, choose as users' do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from shardpost.spark import run_size
from tests.support.how_far import by_seed, is_every

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
COMPILED = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
}
ONE_IN = 8


def plan_conf() -> dict[str, str]:
    """Return the configuration of a job that a test kills."""
    return {} if is_every() else INTERPRETED


def is_compiled(test: str) -> bool:
    """Tell whether a test, by its name, has its plans compiled in this run."""
    return is_every() and by_seed(test).randrange(ONE_IN) == 0


@contextmanager
def compiled(spark: SparkSession) -> Iterator[None]:
    """Have a session compile its plans, of few records too."""
    always = replace(run_size.THRESHOLDS, planned_once=0, interpreted=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_size, "THRESHOLDS", always)
        for name, value in COMPILED.items():
            spark.conf.set(name, value)
        yield
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
