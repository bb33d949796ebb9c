"""Reading exact offset ranges of a topic with Spark's batch source for Kafka."""

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from shardpost.kafka.java_settings import java_settings
from shardpost.kafka.offset_ranges import OffsetRange
from shardpost.settings import Settings

# Large polls about halve the time of a long read; records are small.
FETCH = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.isolation.level": "read_committed",
    "kafka.fetch.max.wait.ms": "5",
}


def read_ranges(
    spark: SparkSession, settings: Settings, ranges: Sequence[OffsetRange]
) -> DataFrame:
    """Return the committed records of ranges of one topic.

    Columns: key, value (BINARY), partition (INT), offset (BIGINT), timestamp, headers.

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
    return reader.load().select("key", "value", "partition", "offset", "timestamp", "headers")
