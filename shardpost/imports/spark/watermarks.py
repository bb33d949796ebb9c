"""Increments: which rows are new, by a column of theirs, and where the next increment begins.

The watermark of what was applied is in the headers of its decision, in the last transaction of its
records: so the two cannot differ.
"""

from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from shardpost.decisions import Kind, decisions_topic
from shardpost.imports.model.list_format import WATERMARK
from shardpost.imports.model.source import STREAM_HEADER, WATERMARK_HEADER, ImportRequest
from shardpost.kafka.kafka import Kafka

# A number, or a time by ISO 8601; one without a zone is of UTC.
_MARK_NUMBER = r"^-?[0-9]{1,28}(\.[0-9]{1,10})?$"
_MARK_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?$"
EXPECTED = "expected a number, or a time such as 2026-11-21T08:00:00Z, as watermark"


def last_watermark(kafka: Kafka, request: ImportRequest) -> str | None:
    """Return where an increment begins; None if none was applied, or it is forgotten.

    An older one than the last, by another clock, would only have rows taken again.
    """
    if not request.watermark:
        return None
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    found = [
        (decision.when, headers[WATERMARK_HEADER].decode())
        for decision, headers in decisions_topic.list_since(kafka, long_ago, {Kind.IMPORTED})
        if headers.get(STREAM_HEADER) == request.stream.encode()
    ]
    return max(found)[1] if found else None


def mark_of(text: Column) -> Column:
    """Return (kind, at) of a watermark: a number, of a time its microseconds; null if neither."""
    number, time = text.try_cast("decimal(38,10)"), F.unix_micros(text.try_cast("timestamp"))
    time = F.when(text.rlike(_MARK_TIME), time.cast("decimal(38,10)"))
    number = F.when(text.rlike(_MARK_NUMBER), number)
    at = F.coalesce(number, time).alias("at")
    return F.when(at.isNotNull(), F.struct(number.isNull().alias("is_time"), at))


def increment(rows: DataFrame, since: str | None) -> DataFrame:
    """Return the rows of records from a watermark on, of each key those with its newest.

    With those whose watermark is none, or of another kind: nothing is passed over.
    """
    mark, last = mark_of(F.col("row").getField(WATERMARK)), mark_of(F.lit(since).cast("string"))
    is_old = (mark < last) & (mark.getField("is_time") == last.getField("is_time"))
    rows = rows.where(~F.coalesce(is_old, F.lit(False)))
    is_older = F.col("key").isNotNull() & (mark < F.max(mark).over(Window.partitionBy("key")))
    rows = rows.withColumn("is_old", F.coalesce(is_older, F.lit(False)))
    return rows.where("NOT is_old").drop("is_old")


def next_watermark(rows: DataFrame, rejected: DataFrame, since: str | None) -> str | None:
    """Return where the next increment begins: at the lowest rejected row, else at the newest."""
    own = F.col("row").getField(WATERMARK)
    [(lowest,)] = rejected.select(F.min_by(own, mark_of(own))).collect()
    [(newest,)] = rows.select(F.max_by(own, mark_of(own))).collect()
    return lowest or newest or since
