"""Reading exact offset ranges of a topic through Python's client, in Spark tasks.

Slower than kafka_source.py, and for timestamps that Spark's source fails on.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.instants import EARLIEST_MS, LATEST_MS
from shardpost.kafka.coordinates import OffsetRange
from shardpost.kafka.reading import read_to_end, record_of
from shardpost.kafka.records import Headers
from shardpost.settings import Settings

_COLUMNS = (
    "key BINARY, value BINARY, `partition` INT, offset BIGINT, timestamp BIGINT,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def read_ranges(
    spark: SparkSession, settings: Settings, ranges: Sequence[OffsetRange]
) -> DataFrame:
    """Return what kafka_source.read_ranges returns, one task for each range."""
    tasks = spark.sparkContext.parallelize(ranges, len(ranges))
    rows = spark.createDataFrame(tasks.flatMap(partial(_rows, settings)), _COLUMNS)
    return rows.withColumn("timestamp", F.timestamp_millis("timestamp"))


def _rows(settings: Settings, range_: OffsetRange) -> Iterator[tuple[Any, ...]]:
    found = read_to_end(settings, range_.topic_partition, start=range_.first, committed=True)
    records = map(record_of, found)
    for record in takewhile(lambda record: record.offset < range_.until, records):
        at = min(max(EARLIEST_MS, record.timestamp), LATEST_MS)
        headers = _as_bytes(record.headers) or None
        yield record.key, record.value, record.partition, record.offset, at, headers


def _as_bytes(headers: Headers) -> list[tuple[str, bytes | None]]:
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in headers]
