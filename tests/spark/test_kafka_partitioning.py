"""Spark's placement of keys (the Java client's own hash) is that of kafka/partitioning.py."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from shardpost.holders.model.record_order import MAX_GENERATION, seq_of
from shardpost.holders.spark import history
from shardpost.kafka.partitioning import partition_of
from shardpost.spark import kafka_source

KEYS = ["", "1", "ab", "abc", "größe", "客户", "x" * 1000, *(f"client{n}" for n in range(300))]


def test_partitions_and_seqs_are_equal_in_spark_and_python(spark: SparkSession) -> None:
    rows = [(key, number % 7, number) for number, key in enumerate(KEYS)]
    frame = spark.createDataFrame(rows, "key STRING, partition INT, offset BIGINT")
    coordinates = F.col("key"), F.col("partition"), F.col("offset")
    found = frame.select(
        *coordinates,
        kafka_source.partition_column(spark, F.col("key"), 7).alias("home"),
        history.seq_of(spark, coordinates, 7, 0).alias("first"),
        history.seq_of(spark, coordinates, 7, MAX_GENERATION).alias("last"),
    ).collect()
    for row in found:
        assert row["home"] == partition_of(row["key"], 7)
        own = row["key"], row["partition"], row["offset"], 7
        assert row["first"] == seq_of(*own)
        assert row["last"] == seq_of(*own, MAX_GENERATION)
