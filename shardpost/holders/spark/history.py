"""New records of an input, decoded and appended to its history."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shardpost.holders.model.tables import RETRY_NAMES
from shardpost.holders.spark.compaction_run import CompactionRun, InputTopic
from shardpost.holders.spark.corrections import Corrections
from shardpost.holders.spark.decoding import decoded
from shardpost.holders.spark.record_order import seq_of
from shardpost.kafka.offset_ranges import OffsetRange


@dataclass(frozen=True)
class Appended:
    """Rows that were appended to a history: how many, and how many of them are rejected.

    `in_current_partition`: all with a key are where Kafka now puts it (model/record_order.py).
    """

    rows: DataFrame
    count: int
    rejected: int
    in_current_partition: bool


def append_originals(
    run: CompactionRun, source: InputTopic, ranges: Sequence[OffsetRange]
) -> Appended:
    """Append the records of ranges of an input."""
    raw = _with_seq(run, source, run.records_of(ranges))
    return _append(run, source, decoded(raw, source.tables.fields, ("seq",)))


def append_corrections(
    run: CompactionRun, source: InputTopic, corrections: Corrections
) -> Appended:
    """Append the retries of an input's records; those of this run are in its history already."""
    matched = corrections.matched(run.tables.read(source.tables.history))
    events = decoded(matched.usable, source.tables.fields, ("seq", *RETRY_NAMES))
    return _append(run, source, events.unionByName(matched.rejected, allowMissingColumns=True))


def _with_seq(run: CompactionRun, source: InputTopic, raw: DataFrame) -> DataFrame:
    partitions = run.partitions[source.topic]
    coordinates = F.col("key"), F.col("partition"), F.col("offset")
    return raw.withColumn("seq", seq_of(run.spark, coordinates, partitions, run.generation(source)))


def _append(run: CompactionRun, source: InputTopic, events: DataFrame) -> Appended:
    rows = events.withColumn("snapshot", F.lit(run.number).cast("bigint"))
    written = run.tables.append(source.tables.history, rows, coalesce=run.broadcast_keys)
    lowest = written.minimum("seq")
    return Appended(
        run.tables.rows_of(written),
        written.rows,
        written.non_null("reason"),
        lowest is None or run.is_in_current_partition(source, lowest),
    )
