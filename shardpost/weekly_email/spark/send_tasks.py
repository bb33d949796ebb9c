"""Sending on Spark: one task per shard, each with its own ledger and connections."""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import get_type_hints

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from shardpost.delta.arrow_schema import arrow_schema_of
from shardpost.settings import Settings
from shardpost.weekly_email.model.prepared_week import PreparedWeek
from shardpost.weekly_email.model.shard_counts import ShardReport
from shardpost.weekly_email.send_plan import BATCH
from shardpost.weekly_email.send_shard import SendOptions, Shard, send_shard
from shardpost.weekly_email.spark import email_session
from shardpost.weekly_email.spark.audience import members
from shardpost.weekly_email.spark.shard_partitions import (
    by_shard,
    require_shard,
    shard_of_this_task,
)

_SQL_TYPES = {int: "BIGINT", tuple[str, ...]: "ARRAY<STRING>", str | None: "STRING"}
REPORT = ", ".join(
    f"{name} {_SQL_TYPES[kind]}" for name, kind in get_type_hints(ShardReport).items()
)


def send_shards(
    settings: Settings, week: PreparedWeek, options: SendOptions, rate: float | None
) -> list[ShardReport]:
    """Send what is open of the run's shards; return the report of each.

    `rate` is the mails per second of this run, None for no limit.
    """
    spark = email_session.start(settings, len(week.shards))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH)
    found = members(spark, settings, week).persist(StorageLevel.DISK_ONLY)
    shard_rate = rate / _parallel_tasks(spark, len(week.shards)) if rate else None
    sizes, shards = _sizes(found), week.shards

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = shard_of_this_task(shards)
        shard = Shard(number, sizes.get(number, 0), shard_rate)
        report = send_shard(settings, options, shard, require_shard(batches, number))
        yield pa.RecordBatch.from_pylist([asdict(report)], arrow_schema_of(REPORT))

    # Not by name: ids that look alike may share what is wrong with their addresses. And in each run
    # another order: a shard that chance stopped, bad addresses side by side, must not meet the same
    # ones first again.
    order = F.xxhash64("client", F.lit(secrets.randbits(62)))
    rows = by_shard(spark, found, shards, order).mapInArrow(task, REPORT).collect()
    return [_report(row) for row in rows]


def _parallel_tasks(spark: SparkSession, shards: int) -> int:
    """Return how many of the shards' tasks Spark may run at once."""
    context = spark.sparkContext
    is_local = str(context.master).startswith("local")
    return min(shards, context.defaultParallelism) if is_local else shards


def _sizes(members: DataFrame) -> dict[int, int]:
    """Return how many clients each shard has; shards without clients are left out."""
    return {row["shard"]: row["count"] for row in members.groupBy("shard").count().collect()}


def _report(row: Row) -> ShardReport:
    lists = {name: tuple(row[name]) for name in ("unknown_clients", "provisional")}
    return ShardReport(**row.asDict() | lists)
