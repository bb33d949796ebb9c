"""Records decoded by Spark, as the tests of decoding give them."""

from collections.abc import Sequence
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from shardpost.holders.model.fields import Field
from shardpost.holders.spark.decoding import decoded
from shardpost.holders.spark.history import analyzed_once

RAW = (
    "key BINARY, value BINARY, `partition` INT, offset BIGINT, timestamp TIMESTAMP,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


Records = Sequence[tuple[bytes | None, bytes | None]]


def raw_rows(spark: SparkSession, records: Records) -> DataFrame:
    """Return records (key, value) as they are read from Kafka, in their order."""
    at = datetime(2026, 11, 16, tzinfo=UTC)
    raw = [(key, value, 0, offset, at, None) for offset, (key, value) in enumerate(records)]
    return spark.createDataFrame(raw, RAW)


def decode(
    spark: SparkSession,
    fields: tuple[Field, ...],
    records: Records,
) -> DataFrame:
    """Return records (key, value) decoded as a compaction does, in their order."""
    return analyzed_once(decoded, raw_rows(spark, records), fields).orderBy("offset")
