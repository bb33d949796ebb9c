"""Retries of records of an input, and the records that they are about: their origins.

Retries are found among all records of the retry topics. A retry says in its headers
(dead_letters/model/letters.py) where its origin is. In the order of the key it has the coordinates
of its origin, and the `seq` that the history has of it; its own coordinates are in the columns
RETRY_NAMES. There are few retries: they are read into a frame of their own, apart from the records
of the inputs.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.dead_letters.model import letters
from shardpost.holders.model.fields import MAX_QUOTED, RecordKind
from shardpost.holders.model.view_tables import RETRY_NAMES
from shardpost.kafka.records import OffsetRange

COORDINATES = ("partition", "offset")


@dataclass(frozen=True)
class Corrections:
    """The retries of one origin topic, and how many they are.

    `lowest` and `highest` are the origin offsets that their headers say; None if none says any.
    """

    topic: str
    retries: DataFrame
    count: int
    lowest: int | None
    highest: int | None

    def matched(self, history: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Return the retries whose origin is found, and the others, which are rejected.

        The former are records as kafka_source.read_ranges returns them, with the coordinates and
        the seq of their origin, and RETRY_NAMES; the latter are rows of a history.

        `history` is the topic's, with all that this run reads: there the origin is looked up, since
        headers may say anything. An origin that does not exist could be above records yet to come;
        one of another key would correct what the retry was never about.
        """
        retries = self.retries.withColumns(
            {
                "partition": _number(letters.ORIGIN_PARTITION).try_cast("int"),
                "offset": _number(letters.ORIGIN_OFFSET),
            }
        )
        origins = self._origins(history, retries)
        # The newest that has the retry's key, else the newest.
        of_key = F.filter("origins", lambda origin: origin["key"].eqNullSafe(F.col("key")))
        first, newest = (F.try_element_at(some, F.lit(1)) for some in (of_key, F.col("origins")))
        checked = (
            retries.join(F.broadcast(origins), [*COORDINATES], "left")
            .withColumn("origin", F.coalesce(first, newest))
            .withColumn("reason", _reason(self.topic))
        )
        usable = checked.where("reason IS NULL").withColumn("seq", F.col("origin.seq"))
        text = F.col("key").cast("string")
        rejected = checked.where("reason IS NOT NULL").select(
            F.when(F.is_valid_utf8(text), text).alias("key"),
            *("partition", "offset", "timestamp", "value"),
            F.lit(RecordKind.REJECTED.value).alias("kind"),
            "reason",
            *(F.col("key").alias("raw_key"), "headers"),
            *map(F.col, RETRY_NAMES),
        )
        return usable.drop("reason", "origin", "origins"), rejected

    def _origins(self, history: DataFrame, retries: DataFrame) -> DataFrame:
        """Return (partition, offset, origins) of the records that are origins.

        `origins` is an array of (seq, key), the highest first: each generation of a topic that was
        recreated may have a record there. The seq is that of the history: it must not be computed
        again, since partitions may have been added to the topic after the record was read.
        """
        between = F.col("offset").between(F.lit(self.lowest), F.lit(self.highest))
        key = F.coalesce("raw_key", F.col("key").cast("binary"))
        is_record = F.col("kind") != RecordKind.RECONCILED.value
        found = F.collect_list(F.struct("seq", key.alias("key")))
        return (
            history.where(F.col("retry_offset").isNull() & is_record & between)
            .join(F.broadcast(retries.select(*COORDINATES)), [*COORDINATES], "left_semi")
            .groupBy(*COORDINATES)
            .agg(F.sort_array(found, asc=False).alias("origins"))
        )


def read_corrections(
    read: Callable[[Sequence[OffsetRange]], DataFrame],
    ranges: Sequence[OffsetRange],
    origins: Collection[str],
) -> dict[str, Corrections]:
    """Return the retries in some ranges of retry topics, by origin topic, for those that have any.

    Retries of other topics than `origins` are ignored. Headers cause no error: `matched` rejects
    retries without a usable origin.
    """
    of_topics = [
        _of_topic(read([range_ for range_ in ranges if range_.topic == topic]), topic, origins)
        for topic in sorted({range_.topic for range_ in ranges})
    ]
    retries = reduce(DataFrame.union, of_topics).persist(StorageLevel.MEMORY_AND_DISK)
    offset = _number(letters.ORIGIN_OFFSET)
    found = retries.groupBy("origin_topic").agg(
        F.count("*").alias("count"), F.min(offset).alias("low"), F.max(offset).alias("high")
    )
    return {
        topic: Corrections(topic, retries.where(F.col("origin_topic") == topic), count, low, high)
        for topic, count, low, high in found.collect()
    }


def _of_topic(records: DataFrame, topic: str, origins: Collection[str]) -> DataFrame:
    """Return the retries of those origins, with their value as the origin should have had it."""
    is_null = (_text(letters.ORIGIN_NULL) == "true") & (F.length("value") == 0)
    return (
        records.withColumn("origin_topic", _text(letters.ORIGIN_TOPIC))
        .where(F.col("origin_topic").isin(*origins))
        .withColumn("value", F.when(~F.coalesce(is_null, F.lit(False)), F.col("value")))
        .withColumn("retry_topic", F.lit(topic))
        .withColumnsRenamed({"partition": "retry_partition", "offset": "retry_offset"})
    )


def _reason(topic: str) -> Column:
    """Return why a retry is rejected, given the origin that was found; null if it is not."""
    partition, offset = _quoted(letters.ORIGIN_PARTITION), _quoted(letters.ORIGIN_OFFSET)
    origin = F.concat(F.lit(f"{topic}["), partition, F.lit("]@"), offset)
    no_record = F.concat(F.lit(f"expected the coordinates of a record of {topic}, found "), origin)
    other_key = F.concat(
        *(F.lit("expected the key of "), origin, F.lit(", "), _quoted_key("origin.key")),
        *(F.lit(", found "), _quoted_key("key")),
    )
    return F.when(F.col("origin").isNull(), no_record).when(
        ~F.col("key").eqNullSafe(F.col("origin.key")), other_key
    )


def _quoted_key(name: str) -> Column:
    text = F.col(name).cast("string")
    other = F.hex(F.substring(name, 1, MAX_QUOTED // 2))
    known = F.when(F.is_valid_utf8(text), F.left(text, F.lit(MAX_QUOTED))).otherwise(other)
    return F.coalesce(known, F.lit("none"))


def _text(name: str) -> Column:
    """Return the last header of that name as text; null if there is none."""
    own = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(own, F.lit(-1))["value"].cast("string")


def _number(name: str) -> Column:
    """Return a header of ASCII digits as BIGINT; null for anything else."""
    return F.when(_text(name).rlike(r"^[0-9]{1,19}\z"), _text(name).try_cast("bigint"))


def _quoted(name: str) -> Column:
    return F.coalesce(F.left(F.make_valid_utf8(_text(name)), F.lit(MAX_QUOTED)), F.lit("none"))
