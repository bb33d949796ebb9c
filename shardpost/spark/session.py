"""The one SparkSession of a job."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

# The rest (master, jars) comes with spark-submit: spark/submit.py.
SESSION_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Nothing is visible before the commit of a log: files may be put in place one by one.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Of headers with one name the last counts, as for Kafka's own clients.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # Spark's own list without kafka: its newer source gives records as they are, where the older
    # one makes an object of each first.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    # Where in our code a column was made, looked up for every one: costs a second per job.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}


def start(
    app: str, *, at_once: int | None = None, worker_daemon: str | None = None
) -> SparkSession:
    """Return the session of this driver.

    `at_once`: so many tasks are to run side by side even if there are fewer cores, since they wait
    most of the time. `worker_daemon` is the module that forks Python workers. Both are heeded where
    the master is `local[*]`.
    """
    builder = SparkSession.builder.appName(f"shardpost {app}")
    for name, value in SESSION_CONF.items():
        builder = builder.config(name, value)
    if at_once is not None and _submitted_master() == "local[*]":
        builder = builder.master(f"local[{max(at_once, os.cpu_count() or 1)}]")
        if worker_daemon is not None:
            builder = builder.config("spark.python.daemon.module", worker_daemon)
    with _own_handling_of_interrupts():
        return builder.getOrCreate()


@contextmanager
def _own_handling_of_interrupts() -> Iterator[None]:
    """Leave Ctrl-C as it is; PySpark would ask a JVM that the same Ctrl-C has ended."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def _submitted_master() -> str | None:
    SparkContext._ensure_initialized()  # only then does SparkConf know what was submitted
    return SparkConf().get("spark.master")
