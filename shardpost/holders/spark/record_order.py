"""The order of the records of a key (model/record_order.py) as a Spark column."""

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from shardpost.holders.model.record_order import layout_of
from shardpost.spark.kafka_partitioning import positive_hash


def seq_of(
    spark: SparkSession,
    coordinates: tuple[Column, Column, Column],
    partitions: int,
    generation: int,
) -> Column:
    """Return the model's `seq_of` (BIGINT) of (key, partition, offset); null for a null key."""
    key, partition, offset = coordinates
    layout, hashed = layout_of(generation), positive_hash(spark, key)
    older = F.aggregate(
        F.sequence(F.lit(1), F.lit(partitions)),
        partition,
        lambda found, n: F.when(hashed % n == partition, n + layout.keyed_rank).otherwise(found),
    )
    newest = F.lit(layout.keyed_rank + partitions)
    rank = F.when(hashed % partitions == partition, newest).otherwise(older)
    number = F.shiftleft(rank.cast("bigint"), layout.offset_bits).bitwiseOR(offset)
    return number + F.lit(layout.base).cast("bigint") if layout.base else number
