"""Retries of records of the inputs, found among all records of the retry topics.

A retry says in its headers (domain/letters.py) where its origin is. It takes the place of its
origin in the order of the key; where itself is stand the columns RETRY. There are few: they are
read into a frame of their own, beside the records of the inputs.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.domain import letters, tables
from shardpost.domain.offsets import Range
from shardpost.domain.snapshot import Offsets
from shardpost.settings import Settings
from spark_jobs.decode import SHOWN
from spark_jobs.fold import REJECTED
from spark_jobs.kafka_source import read_ranges

# Where a retry itself is; null of an original.
RETRY = tuple(name for name, _ in tables.RETRY)


def is_retry() -> Column:
    """Tell which rows of a history, or of a latest-per-key table, are retries."""
    return F.col("retry_offset").isNotNull()


class Retries:
    """The retries of some origin topics among new records of retry topics, and how many there are.

    Raises nothing for what headers say: a retry without a usable origin is rejected.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        new: Sequence[Range],
        origins: Collection[str],
    ) -> None:
        self.counts: dict[str, int] = {}
        topics = sorted({range_.topic for range_ in new})
        if not topics:
            return
        read = [_of_topic(spark, settings, topic, new, origins) for topic in topics]
        self._all = reduce(DataFrame.union, read).persist(StorageLevel.MEMORY_AND_DISK)
        found = self._all.groupBy("origin_topic").count().collect()
        self.counts = {row["origin_topic"]: row["count"] for row in found}

    def of(self, topic: str, ends: Offsets) -> tuple[DataFrame, DataFrame] | None:
        """Return those of one origin topic, those without a usable origin apart; None: no retries.

        The first are as kafka_source gives records, with the partition and the offset of the
        origin, and RETRY. The others are rows of a history. `ends` are those of this run: whatever
        was retried is below them, and an origin beyond would stand above records yet to come.
        """
        if not self.counts.get(topic):
            return None
        own = self._all.where(F.col("origin_topic") == topic).withColumns(
            {
                "partition": _number(letters.ORIGIN_PARTITION).try_cast("int"),
                "offset": _number(letters.ORIGIN_OFFSET),
            }
        )
        judged = own.withColumn("reason", _wrong_origin(topic, ends[topic]))
        return judged.where("reason IS NULL").drop("reason"), _rejected(judged)


def _of_topic(
    spark: SparkSession,
    settings: Settings,
    topic: str,
    new: Sequence[Range],
    origins: Collection[str],
) -> DataFrame:
    records = read_ranges(spark, settings, [range_ for range_ in new if range_.topic == topic])
    is_null = (_text(letters.ORIGIN_NULL) == "true") & (F.length("value") == 0)
    return (
        records.withColumn("origin_topic", _text(letters.ORIGIN_TOPIC))
        .where(F.col("origin_topic").isin(*origins))
        .withColumn("value", F.when(~F.coalesce(is_null, F.lit(False)), F.col("value")))
        .withColumn("retry_topic", F.lit(topic))
        .withColumnsRenamed({"partition": "retry_partition", "offset": "retry_offset"})
    )


def _wrong_origin(topic: str, ends: Mapping[int, int]) -> Column:
    """Say what is wrong with an origin; null if nothing is."""
    known = F.create_map(*(F.lit(number) for place in ends.items() for number in place))
    end = F.try_element_at(known, F.col("partition")).cast("bigint")
    partition, offset = _shown(letters.ORIGIN_PARTITION), _shown(letters.ORIGIN_OFFSET)
    wanted = f"expected origin-partition to be a partition of {topic}, 0 to {len(ends) - 1}, found "
    below = F.concat(
        *(F.lit(f"expected origin-offset below the end of {topic}["), F.col("partition")),
        *(F.lit("], "), end, F.lit(", found "), offset),
    )
    no_offset = F.concat(F.lit("expected origin-offset to be a number, found "), offset)
    return (
        F.when(end.isNull(), F.concat(F.lit(wanted), partition))
        .when(F.col("offset").isNull(), no_offset)
        .when(F.col("offset") >= end, below)
    )


def _rejected(judged: DataFrame) -> DataFrame:
    text = F.col("key").cast("string")
    return judged.where("reason IS NOT NULL").select(
        F.when(F.is_valid_utf8(text), text).alias("key"),
        *("partition", "offset", "timestamp", "value", F.lit(REJECTED).alias("kind"), "reason"),
        *(F.col("key").alias("raw_key"), "headers"),
        *map(F.col, RETRY),
    )


def _header(name: str) -> Column:
    """Return the value of the last header of that name; null if there is none."""
    own = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(own, F.lit(-1))["value"]


def _text(name: str) -> Column:
    return _header(name).cast("string")


def _number(name: str) -> Column:
    """Return a header of ASCII digits as BIGINT; null for anything else."""
    return F.when(_text(name).rlike(r"^[0-9]{1,19}\z"), _text(name).try_cast("bigint"))


def _shown(name: str) -> Column:
    return F.coalesce(F.left(_text(name), F.lit(SHOWN)), F.lit("none"))
