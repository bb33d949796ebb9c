"""The order of the records of a key (model/record_order.py) as a Spark column."""

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from shardpost.holders.model.record_order import KEYED_RANK, OFFSET_BITS
from shardpost.spark.kafka_partitioning import positive_hash


def seq_of(
    spark: SparkSession, key: Column, partition: Column, offset: Column, partitions: int
) -> Column:
    """Return the model's `seq_of` (BIGINT); null for a null key."""
    hashed = positive_hash(spark, key)
    older = F.aggregate(
        F.sequence(F.lit(1), F.lit(partitions)),
        partition,
        lambda found, n: F.when(hashed % n == partition, n + KEYED_RANK).otherwise(found),
    )
    rank = F.when(hashed % partitions == partition, F.lit(KEYED_RANK + partitions)).otherwise(older)
    return F.shiftleft(rank.cast("bigint"), OFFSET_BITS).bitwiseOR(offset)
