"""Reading exact offset ranges of a topic with Spark's batch source for Kafka."""

import json
from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.instants import EARLIEST_MS, LATEST_MS
from shardpost.kafka.coordinates import OffsetRange
from shardpost.kafka.java_settings import java_settings
from shardpost.settings import Settings

ReadRanges = Callable[[SparkSession, Settings, Sequence[OffsetRange]], DataFrame]

# Large polls about halve the time of a long read; records are small.
FETCH = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.isolation.level": "read_committed",
    "kafka.fetch.max.wait.ms": "5",
}


def read_ranges(
    spark: SparkSession, settings: Settings, ranges: Sequence[OffsetRange], *more: str
) -> DataFrame:
    """Return the committed records of ranges of one topic.

    Columns: key, value (BINARY), partition (INT), offset (BIGINT), timestamp, headers, and `more`
    of the source's own. A timestamp outside of what a calendar has becomes the nearest that it has
    (shardpost.instants).

    Reading fails (`is_beyond_timestamps`) on what is more than 292,271 years away.

    Offsets without a record (transaction markers, compacted ones) are skipped. Reading fails if the
    end of a range has been deleted meanwhile.
    """
    (topic,) = {range_.topic for range_ in ranges}
    reader = spark.read.format("kafka").options(
        **FETCH,
        **{f"kafka.{name}": value for name, value in java_settings(settings.kafka).items()},
        **{"kafka.bootstrap.servers": settings.bootstrap, "includeHeaders": "true"},
        assign=json.dumps({topic: [range_.partition for range_ in ranges]}),
        startingOffsets=json.dumps({topic: {str(r.partition): r.first for r in ranges}}),
        endingOffsets=json.dumps({topic: {str(r.partition): r.until for r in ranges}}),
    )
    columns = ("key", "value", "partition", "offset", "timestamp", "headers", *more)
    records = reader.load().withColumn("timestamp", _in_calendar(F.col("timestamp")))
    return records.select(*columns)


def is_beyond_timestamps(error: Exception) -> bool:
    """Tell whether Spark's source failed on a timestamp that is no BIGINT in microseconds."""
    return "ArithmeticException: long overflow" in str(error)


def _in_calendar(timestamp: Column) -> Column:
    earliest, latest = F.timestamp_millis(F.lit(EARLIEST_MS)), F.timestamp_millis(F.lit(LATEST_MS))
    return F.greatest(F.least(timestamp, latest), earliest)
