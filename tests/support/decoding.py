"""Records decoded by Spark, as the tests of decoding give them."""

from collections.abc import Sequence
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from shardpost.holders.model.fields import Field
from shardpost.holders.spark.decoding import decoded

RAW = (
    "key BINARY, value BINARY, `partition` INT, offset BIGINT, timestamp TIMESTAMP,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def decode(
    spark: SparkSession,
    fields: tuple[Field, ...],
    records: Sequence[tuple[bytes | None, bytes | None]],
) -> DataFrame:
    """Return records (key, value) decoded, in their order."""
    at = datetime(2026, 11, 16, tzinfo=UTC)
    raw = [(key, value, 0, offset, at, None) for offset, (key, value) in enumerate(records)]
    return decoded(spark.createDataFrame(raw, RAW), fields).orderBy("offset")
