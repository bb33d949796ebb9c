"""The partition that Kafka puts a key into, and so the shard of a client, as a Spark column.

It is computed by the Java client's own class; shardpost/kafka/partitioning.py is the same rule in
Python, and a test compares the two.
"""

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn


def partition_column(spark: SparkSession, key: Column, partitions: int) -> Column:
    """Return the partition (INT) of a key (STRING) in a topic of that many partitions."""
    return (positive_hash(spark, key) % partitions).cast("int")


def positive_hash(spark: SparkSession, key: Column) -> Column:
    """Return Kafka's hash (INT, not negative) of a key (STRING)."""
    jvm: Any = spark.sparkContext._jvm
    to_expression = jvm.org.apache.spark.sql.classic.ExpressionUtils.expression
    to_column = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    seq = jvm.PythonUtils.toSeq
    call = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
        loader.loadClass("org.apache.kafka.common.utils.Utils"),
        jvm.org.apache.spark.sql.types.DataTypes.IntegerType,
        "murmur2",
        seq([to_expression(key.cast("binary")._jc)]),
        *(seq([]), True, True, True, jvm.scala.Option.empty()),
    )
    return ClassicColumn(to_column(call)).bitwiseAND(F.lit(0x7FFFFFFF))
