"""Sending on Spark: one task per shard, each with its own ledger and connections.

One Spark partition holds the clients of one shard and is a Spark job of its own: after the loss of
an executor, Spark reruns the unfinished tasks of a job, which would fence shards that other
executors mail. A long Spark error is reduced to the one line that matters.
"""

import gc
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import StorageLevel, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost import logs
from shardpost.delta.arrow_schema import schema_of
from shardpost.delta.table import columns_of, ddl_of
from shardpost.errors import ShardpostError
from shardpost.installation import Installation, opened
from shardpost.spark import driver
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import ShardReport
from shardpost.weekly_email.own_templates import TemplateSettings, templates_of
from shardpost.weekly_email.prepared_week import PreparedWeek
from shardpost.weekly_email.send_shard import SendOptions, Shard, send_shard
from shardpost.weekly_email.spark.audience_freeze import WeekFrames


@contextmanager
def spark_errors_of(week: IsoWeek) -> Iterator[None]:
    """Turn a Spark error into a ShardpostError with the innermost cause."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise ShardpostError(
            f"weekly_email {week}: Spark failed: {driver.innermost_cause(error)};"
            " the remaining clients are not mailed yet: run again"
        ) from None


def by_shard(
    spark: SparkSession, members: DataFrame, shards: list[int], *order: Column
) -> DataFrame:
    """Put the clients of `shards[i]` into partition i, in that order or sorted by id."""
    count = len(shards)
    pairs = zip(shards, _salts(spark, count), strict=True)
    salts = [part for shard, salt in pairs for part in (F.lit(shard), F.lit(salt).cast("bigint"))]
    salt = F.element_at(F.create_map(*salts), F.col("shard"))
    return (
        members.where(F.col("shard").isin(shards))
        .repartition(count, salt)
        .sortWithinPartitions(*order, "client")
    )


def shard_of_this_task(shards: list[int]) -> int:
    """Return the shard of this worker's task, and set up logging."""
    logs.configure_logging()
    context = TaskContext.get()
    if context is None:
        raise ShardpostError("expected to run in a Spark task, found no task context")
    return shards[context.partitionId()]


def require_shard(batches: Iterable[pa.RecordBatch], shard: int) -> Iterator[pa.RecordBatch]:
    """Pass on a shard's batches, which have the column `shard`.

    Raises ShardpostError for clients of another shard, which would be mailed twice.
    """
    for batch in batches:
        others = set(batch.column("shard").to_pylist()) - {shard}
        if others:
            raise ShardpostError(
                f"shard {shard}: expected only its own clients, found clients of"
                f" shards {sorted(others)}"
            )
        yield batch


def _salts(spark: SparkSession, count: int) -> list[int]:
    """Return for each partition a BIGINT that Spark's hash maps to it."""
    salts: dict[int, int] = {}
    tried = 0
    while len(salts) < count:
        numbers = spark.range(tried, tried + 64 * count)
        hashed = numbers.select("id", F.pmod(F.hash("id"), F.lit(count)).alias("partition"))
        for row in hashed.collect():
            salts.setdefault(row["partition"], row["id"])
        tried += 64 * count
    return [salts[partition] for partition in range(count)]


REPORT = columns_of(ShardReport)
# Driver threads, each waiting for one shard; executors have fewer cores.
MOST_WAITING = 256


def send_shards(
    installation: Installation, week: PreparedWeek, options: SendOptions
) -> list[ShardReport]:
    """Mail the open clients of the run's shards; return the report of each.

    At a rate, the number of parallel shards is that of the cores now, even if executors join later.
    """
    audience = WeekFrames(installation.tables, week)
    members = audience.members().persist(StorageLevel.DISK_ONLY)
    counts, shards = members.groupBy("shard").count().collect(), week.shards
    sizes = {row["shard"]: row["count"] for row in counts}  # without empty shards
    context = audience.spark.sparkContext  # waits until its executors have joined
    rate = installation.settings.mail_rate
    at_once = min(len(shards), context.defaultParallelism if rate else MOST_WAITING)
    shard_rate = rate / at_once if rate else None

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = shard_of_this_task(shards)
        shard = Shard(number, sizes.get(number, 0), shard_rate)
        report = send_shard(installation, options, shard, require_shard(batches, number))
        yield pa.RecordBatch.from_pylist([asdict(report)], schema_of(REPORT))

    # Not by name: similar ids may share faulty addresses. And in a different order in each run: a
    # shard that was stopped by a cluster of bad addresses must not meet them first again.
    order = F.xxhash64("client", F.lit(secrets.randbits(62)))
    rows = by_shard(audience.spark, members, shards, order).mapInArrow(task, ddl_of(REPORT)).rdd

    with ThreadPoolExecutor(at_once) as pool:
        jobs = pool.map(lambda shard: context.runJob(rows, list, [shard]), range(len(shards)))
        sent = [row.asDict() for [row] in jobs]
    return [ShardReport(**row | {"provisional": tuple(row["provisional"])}) for row in sent]


def fork_workers() -> None:
    """Be Spark's daemon of Python workers, with the imports of a shard's task preloaded.

    Each worker is forked from it, and would otherwise spend a second of processor time on imports
    and a tenth on compiling the mail templates.
    """
    from pyspark.daemon import manager

    with suppress(ShardpostError):  # here the folder may be missing: tasks bring their templates
        templates_of(opened().values(TemplateSettings))
    gc.freeze()  # keeps garbage collection away from memory shared by the workers
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    fork_workers()
