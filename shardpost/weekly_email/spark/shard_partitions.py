"""One Spark partition, and so one task, per shard of the weekly e-mail."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost import logs
from shardpost.errors import ShardpostError


def by_shard(
    spark: SparkSession, members: DataFrame, shards: list[int], *order: Column
) -> DataFrame:
    """Put the clients of `shards[i]` into partition i, in that order, or by their ids."""
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
    """Return the shard of the task that this worker runs; its logging is set up as well."""
    logs.configure()
    context = TaskContext.get()
    if context is None:
        raise ShardpostError("expected to run in a Spark task, found none")
    return shards[context.partitionId()]


def require_shard(batches: Iterable[pa.RecordBatch], shard: int) -> Iterator[pa.RecordBatch]:
    """Pass on a shard's batches; ShardpostError for clients of another, who would be mailed twice.

    Batches have the column `shard`.
    """
    for batch in batches:
        others = set(batch.column("shard").to_pylist()) - {shard}
        if others:
            raise ShardpostError(f"shard {shard}: found clients of the shards {sorted(others)}")
        yield batch


def _salts(spark: SparkSession, count: int) -> list[int]:
    """Return for each partition a BIGINT that Spark's own hash puts there."""
    found: dict[int, int] = {}
    tried = 0
    while len(found) < count:
        numbers = spark.range(tried, tried + 64 * count)
        hashed = numbers.select("id", F.pmod(F.hash("id"), F.lit(count)).alias("partition"))
        for row in hashed.collect():
            found.setdefault(row["partition"], row["id"])
        tried += 64 * count
    return [found[partition] for partition in range(count)]
