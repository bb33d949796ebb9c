"""Retries of records of the inputs, found among all records of the retry topics.

A retry says in its headers (dead_letters/model/letters.py) where its origin is. It takes the place of its
origin in the order of the key; where itself is stand the columns RETRY. There are few: they are
read into a frame of their own, beside the records of the inputs.
"""

from collections.abc import Collection, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.dead_letters.model import letters
from shardpost.holders.model import tables
from shardpost.holders.spark.decoding import SHOWN
from shardpost.holders.spark.fold import REJECTED
from shardpost.kafka.offset_ranges import OffsetRange
from shardpost.settings import Settings
from shardpost.spark.kafka_source import read_ranges

# Where a retry itself is; null of an original.
RETRY = tuple(name for name, _ in tables.RETRY)
PLACE = ("partition", "offset")


def is_retry() -> Column:
    """Tell which rows of a history, or of a latest-per-key table, are retries."""
    return F.col("retry_offset").isNotNull()


class Corrections:
    """The retries of some origin topics among new records of retry topics, and how many there are.

    Raises nothing for what headers say: a retry without a usable origin is rejected.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        new: Sequence[OffsetRange],
        origins: Collection[str],
    ) -> None:
        self.counts: dict[str, int] = {}
        self._spans: dict[str, tuple[Column, Column]] = {}
        topics = sorted({range_.topic for range_ in new})
        if not topics:
            return
        read = [_of_topic(spark, settings, topic, new, origins) for topic in topics]
        self._all = reduce(DataFrame.union, read).persist(StorageLevel.MEMORY_AND_DISK)
        offset = _number(letters.ORIGIN_OFFSET)
        found = self._all.groupBy("origin_topic").agg(
            F.count("*").alias("count"), F.min(offset).alias("low"), F.max(offset).alias("high")
        )
        for row in found.collect():
            self.counts[row["origin_topic"]] = row["count"]
            self._spans[row["origin_topic"]] = (F.lit(row["low"]), F.lit(row["high"]))

    def of(self, topic: str, history: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Return those of one origin topic, those without a usable origin apart.

        The first are as kafka_source gives records, with the partition and the offset of the
        origin, and RETRY. The others are rows of a history. `history` is the topic's, with all that
        this run reads: there the origin of each is looked up, since headers may say anything. One
        that is not there would stand above records yet to come; one of another key would correct
        what it was never about.
        """
        own = self._all.where(F.col("origin_topic") == topic).withColumns(
            {
                "partition": _number(letters.ORIGIN_PARTITION).try_cast("int"),
                "offset": _number(letters.ORIGIN_OFFSET),
            }
        )
        places = F.broadcast(own.select(*PLACE))
        origins = (
            history.where(~is_retry() & F.col("offset").between(*self._spans[topic]))
            .join(places, [*PLACE], "left_semi")
            .select(*PLACE, F.coalesce("raw_key", F.col("key").cast("binary")).alias("own_key"))
            .withColumn("is_there", F.lit(True))
        )
        judged = own.join(F.broadcast(origins), [*PLACE], "left").withColumn(
            "reason", _wrong_origin(topic)
        )
        usable = judged.where("reason IS NULL").drop("reason", "own_key", "is_there")
        return usable, _rejected(judged)


def _of_topic(
    spark: SparkSession,
    settings: Settings,
    topic: str,
    new: Sequence[OffsetRange],
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


def _wrong_origin(topic: str) -> Column:
    """Say what is wrong with an origin, given what was found in its place; null if nothing is."""
    partition, offset = _shown(letters.ORIGIN_PARTITION), _shown(letters.ORIGIN_OFFSET)
    place = F.concat(F.lit(f"{topic}["), partition, F.lit("]@"), offset)
    no_record = F.concat(F.lit(f"expected the place of a record of {topic}, found "), place)
    other_key = F.concat(
        *(F.lit("expected the key of "), place, F.lit(", "), _shown_key("own_key")),
        *(F.lit(", found "), _shown_key("key")),
    )
    return F.when(F.col("is_there").isNull(), no_record).when(
        ~F.col("key").eqNullSafe(F.col("own_key")), other_key
    )


def _shown_key(name: str) -> Column:
    text = F.col(name).cast("string")
    known = F.when(F.is_valid_utf8(text), F.left(text, F.lit(SHOWN))).otherwise(F.hex(name))
    return F.coalesce(known, F.lit("none"))


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
