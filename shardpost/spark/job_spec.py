"""What is known of a Spark job before it starts, and the argument that all jobs have.

DAGs import this module: it imports nothing heavy.
"""

from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardpost.errors import ShardpostError
from shardpost.settings import Settings

# The outcome of a job: its exit code (shardpost.errors) and its JSON document.
JobResult = tuple[int, dict[str, Any]]

# From this many records on, the JVM's optimising compiler pays for itself.
LONG_RUN_RECORDS = 500_000


def _no_records(_settings: Settings) -> int:
    return 0


def _needs_spark(_settings: Settings, _arguments: Sequence[str]) -> JobResult | None:
    return None


@dataclass(frozen=True)
class JobSpec:
    """One job: the stem of its file in `spark_jobs/`, which is its DAG's id too.

    `unread_records` counts what it would read now; with `has_own_class_archive` it loads half as
    many classes again as other jobs do (class_archive.py). `more_jars` are files of `ivy/`, beside
    Spark's own. `without_spark` does the job in the
    calling process, by its arguments, where that needs no Spark: starting Spark takes seconds. Else
    it changes nothing and returns None.
    """

    name: str
    # Not in the repr, whose address of a function would make each parsing a new version of a DAG.
    unread_records: Callable[[Settings], int] = field(default=_no_records, repr=False)
    has_own_class_archive: bool = False
    more_jars: tuple[str, ...] = ()
    without_spark: Callable[[Settings, Sequence[str]], JobResult | None] = field(
        default=_needs_spark, repr=False
    )

    def is_long(self, settings: Settings) -> bool:
        """Tell whether it would read LONG_RUN_RECORDS or more; False where that cannot be known."""
        try:
            return self.unread_records(settings) >= LONG_RUN_RECORDS
        except ShardpostError:
            return False  # the job itself reports the error

    def result_without_spark(
        self, settings: Settings, arguments: Sequence[str]
    ) -> JobResult | None:
        """Do it in this process if it needs no Spark; ShardpostError for errors of tables, too."""
        from shardpost.delta.query import table_errors  # heavy: DAGs import this module

        with table_errors():
            return self.without_spark(settings, arguments)


def job_parser(description: str | None) -> ArgumentParser:
    """Return a parser with the argument that all jobs have: `--result`."""
    made = ArgumentParser(description=description)
    made.add_argument("--result", type=Path, help="file for the JSON result")
    return made
