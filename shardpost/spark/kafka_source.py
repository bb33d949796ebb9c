"""Kafka in Spark: offset ranges of a topic as a frame, and its partitioner as a column.

They are read by Spark's batch source for Kafka or, slower and for timestamps that this source fails
on, through Python's client in tasks. Of few records that client has read all before Spark has made
its plan. The partition of a key is computed by the Java client's own class;
shardpost/kafka/records.py is the same rule in Python, and a test compares the two.
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from shardpost.errors import ShardpostError
from shardpost.instants import EARLIEST_MS, LATEST_MS
from shardpost.kafka.java_settings import java_settings
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.reading import BulkReading, read_to_end, record_of
from shardpost.kafka.records import HEADERS_LEFT_OUT, OffsetRange, Record, header_bytes, total_size
from shardpost.spark import run_size

log = logging.getLogger(__name__)

T = TypeVar("T")
ReadRanges = Callable[[SparkSession, Kafka, Sequence[OffsetRange]], DataFrame]

# Large polls about halve the time of a long read; records are small.
FETCH = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.isolation.level": "read_committed",
    "kafka.fetch.max.wait.ms": "5",
}

REQUEST_MS = 30_000  # as the Java client has it


def _client(kafka: Kafka) -> dict[str, str]:
    """Return what the Java client is configured with; what a user sets takes precedence over ours.

    A broker that is silent is given up by driver and tasks alike, in time to ask another one.
    """
    milliseconds = int(1000 * kafka.timeout)
    own = {"request.timeout.ms": str(min(REQUEST_MS, milliseconds // 2))}
    own |= {"bootstrap.servers": kafka.bootstrap, **java_settings(kafka.client_settings)}
    whole = str(max(milliseconds, int(own["request.timeout.ms"])))
    client = {f"kafka.{name}": value for name, value in own.items()}
    timeouts = ("kafka.default.api.timeout.ms", "kafkaConsumer.pollTimeoutMs")
    return FETCH | dict.fromkeys(timeouts, whole) | client


def read_ranges(spark: SparkSession, kafka: Kafka, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Return the committed records of ranges of one topic.

    Columns: key, value (BINARY), partition (INT), offset (BIGINT), timestamp, headers. A timestamp
    outside of what a calendar has becomes the nearest that it has (shardpost.instants).

    Reading fails (`with_timestamp_fallback`) on what is more than 292,271 years away, if
    the end of a range has been deleted meanwhile, or if no leader answers within `kafka_timeout`.
    Offsets without a record (transaction markers, compacted ones) are skipped.
    """
    (topic,) = {range_.topic for range_ in ranges}
    reader = spark.read.format("kafka").options(
        **_client(kafka),
        includeHeaders="true",
        # The history has files of moderate size then.
        maxRecordsPerPartition=str(run_size.THRESHOLDS.per_task),
        assign=json.dumps({topic: [range_.partition for range_ in ranges]}),
        startingOffsets=json.dumps({topic: {str(r.partition): r.first for r in ranges}}),
        endingOffsets=json.dumps({topic: {str(r.partition): r.until for r in ranges}}),
    )
    columns = ("key", "value", "partition", "offset", "timestamp", "headers")
    earliest, latest = (F.timestamp_millis(F.lit(at)) for at in (EARLIEST_MS, LATEST_MS))
    in_calendar = F.greatest(F.least("timestamp", latest), earliest)
    return reader.load().withColumn("timestamp", in_calendar).select(*columns)


_CLIENT_COLUMNS = (
    "key BINARY, value BINARY, `partition` INT, offset BIGINT, timestamp BIGINT,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def read_ranges_by_client(
    spark: SparkSession, kafka: Kafka, ranges: Sequence[OffsetRange]
) -> DataFrame:
    """Return what `read_ranges` returns, one task for each range."""
    tasks = spark.sparkContext.parallelize(ranges, len(ranges))
    rows = spark.createDataFrame(tasks.flatMap(partial(_client_rows, kafka)), _CLIENT_COLUMNS)
    return rows.withColumn("timestamp", F.timestamp_millis("timestamp"))


def with_timestamp_fallback(work: Callable[[ReadRanges], T]) -> T:
    """Return the work's result; by Python's client if a timestamp in microseconds is no BIGINT."""
    try:
        return work(read_ranges)
    except (PySparkException, Py4JError) as error:
        if "ArithmeticException: long overflow" not in str(error):
            raise
        log.warning("a record's timestamp is out of Spark's range: reading through Python's client")
    return work(read_ranges_by_client)


def _client_rows(kafka: Kafka, range_: OffsetRange) -> Iterator[tuple[Any, ...]]:
    found = read_to_end(kafka, range_.topic_partition, start=range_.first, committed=True)
    records = map(record_of, found)
    return map(_row, takewhile(lambda record: record.offset < range_.until, records))


def _row(record: Record) -> tuple[Any, ...]:
    at = min(max(EARLIEST_MS, record.timestamp), LATEST_MS)
    headers = [(name, header_bytes(value)) for name, value in record.headers]
    return record.key, record.value, record.partition, record.offset, at, headers or None


def _table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((),) * len(_ROWS)
    return pa.table([*map(pa.array, columns, _ROWS.types)], _ROWS)


def frame_of(spark: SparkSession, records: Iterable[Record]) -> DataFrame:
    """Return records that were read, as `read_ranges` would."""
    return spark.createDataFrame(_table([*map(_row, records)]))


FEW_SECONDS = 5.0
_ROWS = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", "UTC"),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)


@dataclass(frozen=True)
class FewRecords:
    """All records of some ranges, in memory: {topic: rows}, with the columns of `read_ranges`."""

    ranges: Collection[OffsetRange]
    rows: dict[str, pa.Table]

    @classmethod
    def read(cls, kafka: Kafka, ranges: Collection[OffsetRange]) -> "FewRecords | None":
        """Read them; None where that is for Spark's source, which also says what is wrong."""
        most = run_size.THRESHOLDS
        if not ranges or total_size(ranges) > most.read_at_once:
            return None
        reading = BulkReading(kafka, ranges, committed=True, most=sys.maxsize, whole=True)
        found: dict[str, list[tuple[Any, ...]]] = {range_.topic: [] for range_ in ranges}
        size = 0
        try:
            for message in reading.messages(until=time.monotonic() + FEW_SECONDS):
                record = record_of(message)
                size += sum(len(part or "") for part in (record.key, record.value))
                size += sum(len(part or "") for pair in record.headers for part in pair)
                if size > most.bytes_at_once or HEADERS_LEFT_OUT in dict(record.headers):
                    return None
                found[record.topic].append(_row(record))
        except (ShardpostError, KafkaException) as error:
            log.info("leaving the records to Spark's source: %s", error)
            return None
        if any(reading.reached[one.topic_partition] < one.until for one in ranges):
            return None
        return cls({*ranges}, {topic: _table(rows) for topic, rows in found.items()})

    def or_else(
        self, read: ReadRanges, spark: SparkSession, kafka: Kafka, ranges: Sequence[OffsetRange]
    ) -> DataFrame:
        """Return the records of ranges; others than these are read by that function."""
        if not {*ranges} <= {*self.ranges}:
            return read(spark, kafka, ranges)
        (topic,) = {range_.topic for range_ in ranges}
        partitions = pa.array((range_.partition for range_ in ranges), pa.int32())
        rows = self.rows[topic]
        found = rows.filter(pc.is_in(rows["partition"], partitions))
        return spark.createDataFrame(found if found.num_rows else _ROWS.empty_table())


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
