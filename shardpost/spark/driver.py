"""A job in its driver: a request in, one JSON result out, one line for a known error."""

import json
import os
import re
import signal
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from shardpost import logs
from shardpost.delta.query import table_errors
from shardpost.errors import ShardpostError, harmless
from shardpost.installation import Installation, opened
from shardpost.locks import refused_runs
from shardpost.spark import run_size
from shardpost.spark.job import (
    BY_DEFAULT,
    STAYS,
    JobResult,
    properties,
    request_of,
    terminate_with_parent,
)


def start_session(
    app: str, *, at_once: int | None = None, worker_daemon: str | None = None
) -> SparkSession:
    """Return the session of this driver.

    `at_once` is how many tasks run in parallel even on fewer cores, for tasks that mostly wait;
    `worker_daemon` is the module that forks Python workers. Both apply to the master `local[*]`
    only.
    """
    builder = SparkSession.builder.appName(f"shardpost {app}")
    for name, value in properties("session.conf").items():
        builder = builder.config(name, value)
    if at_once is not None:
        SparkContext._ensure_initialized()  # SparkConf knows what was submitted only then
        if SparkConf().get("spark.master") == "local[*]":
            builder = builder.master(f"local[{max(at_once, os.cpu_count() or 1)}]")
            if worker_daemon is not None:
                builder = builder.config("spark.python.daemon.module", worker_daemon)
    interrupt_handler = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        # PySpark's own would ask a JVM that the same Ctrl-C has ended.
        signal.signal(signal.SIGINT, interrupt_handler)
    # To Python in executors, with the tasks: neither arguments nor Spark's UI have them. Their JVMs
    # get them from Spark itself.
    store = {name: text for name, text in os.environ.items() if name.startswith("AWS_")}
    session.sparkContext.environment.update(store)
    return session


def divide_shuffles(spark: SparkSession, records: int) -> None:
    """Choose the number of shuffle tasks for a number of records, or rows, from now on."""
    tasks = spark.sparkContext.defaultParallelism
    if records > run_size.THRESHOLDS.few:
        tasks = max(4 * tasks, records // run_size.THRESHOLDS.per_task)
    spark.conf.set("spark.sql.shuffle.partitions", tasks)


_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_ADAPTIVE = "spark.sql.adaptive.enabled"


def plan_for(spark: SparkSession, records: int) -> None:
    """Choose how plans for a number of records, or rows, are made from now on."""
    divide_shuffles(spark, records)
    comes_once = spark.conf.get(STAYS, None) is None
    is_small = records <= run_size.THRESHOLDS.interpreted
    chosen = _INTERPRETED if comes_once and is_small else _COMPILED
    is_planned_again = records > run_size.THRESHOLDS.planned_once
    for name, value in (chosen | {_ADAPTIVE: str(is_planned_again).lower()}).items():
        spark.conf.set(name, value)


T = TypeVar("T")


def run_job(
    kind: type[T],
    body: Callable[[T, Installation], JobResult],
    *,
    noted_as: Callable[[T, str], str | None] = lambda _, job: job,
) -> NoReturn:
    """Run a job by the request on its command line, as `run_body` does.

    `JOB.py [REQUEST] [--result FILE]`: the JSON document of a `kind` (job.document_of), and
    where the job's own document goes. Whether it was refused is noted as that of what `noted_as`
    makes of a request and the job's name; None: it only looks.
    """
    parser = ArgumentParser()
    parser.add_argument("request", nargs="?", default=BY_DEFAULT)
    parser.add_argument("--result", type=Path)
    given = parser.parse_args()

    def noted(installation: Installation) -> JobResult:
        asked = request_of(kind, given.request)
        if (job := noted_as(asked, Path(sys.argv[0]).stem)) is None:
            return body(asked, installation)
        with refused_runs.noting(installation.files, job), job_errors():
            result = body(asked, installation)
        refused_runs.note_result(installation.files, job, *result)
        return result

    run_body(noted, result=given.result)


@contextmanager
def job_errors() -> Iterator[None]:
    """Raise errors of Spark and tables as ShardpostError."""
    try:
        with table_errors():
            yield
    except (PySparkException, Py4JError) as error:
        raise ShardpostError(why_spark_failed(error)) from error


def run_body(body: Callable[[Installation], JobResult], *, result: Path | None) -> NoReturn:
    """Run a job's body, write its JSON document to `result`, and exit with its code.

    A known error becomes one line on standard error, and its exit code.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the JVM too: it cannot be asked
    terminate_with_parent()  # the JVM: without it the driver can do nothing
    logs.configure_logging()
    try:
        with job_errors():
            code, document = body(opened())
    except ShardpostError as error:
        sys.stderr.write(f"shardpost: {harmless(str(error))}\n")
        sys.exit(error.exit_code)
    if result:
        temporary = result.with_suffix(".tmp")
        temporary.write_text(json.dumps(document))
        temporary.replace(result)
    sys.exit(code)


_CAUSE = re.compile(r"(Caused by)?: |(?=(\w+\.)*\w+(Error|Exception): )")
LONGEST_CAUSE = 1000
KAFKA_TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"


def innermost_cause(error: Exception) -> str:
    """Return the line with the innermost cause of a Spark error."""
    lines = str(error).splitlines() or [type(error).__name__]
    causes = [line[begins.end() :] for line in lines if (begins := _CAUSE.match(line))]
    return (causes or lines[:1])[-1][:LONGEST_CAUSE]


def why_spark_failed(error: Exception) -> str:
    """Return a Spark error as one line, with what to do if that is known."""
    cause = innermost_cause(error)
    if not cause.startswith(KAFKA_TIMEOUT):
        return f"Spark failed: {cause}"
    said = cause.removeprefix(f"{KAFKA_TIMEOUT}: ")
    return (
        f"Kafka did not answer Spark within SHARDPOST_KAFKA_TIMEOUT ({said}):"
        " `shardpost doctor` shows what is wrong; then run again"
    )
