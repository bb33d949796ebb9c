"""New records of an input, decoded and appended to its history; retries by their origin.

Retries are found among all records of the retry topics. A retry says in its headers
(dead_letters/model/letters.py) where its origin is. In the order of the key it has the coordinates
of its origin, and the `seq` that the history has of it; its own coordinates are in the columns
RETRY_NAMES. There are few retries: they are read into a frame of their own, apart from the records
of the inputs.

The order of the records of a key is that of model/record_order.py, as a Spark column.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.dead_letters.model import letters
from shardpost.delta import query
from shardpost.delta.arrow_schema import rows_of
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import Numbering, by_time, scattered_keys
from shardpost.holders.model.view_tables import RETRY_NAMES
from shardpost.holders.spark.compaction_run import CompactionRun, InputTopic
from shardpost.holders.spark.decoding import MAX_QUOTED, decoded
from shardpost.holders.spark.table_writer import TableWriter
from shardpost.kafka.coordinates import OffsetRange
from shardpost.spark.analyzed_plans import analyzed_once
from shardpost.spark.delta_files import Written
from shardpost.spark.partitioning import positive_hash


def seq_of(
    spark: SparkSession, coordinates: tuple[Column, Column, Column], numbering: Numbering
) -> Column:
    """Return the model's `seq` (BIGINT) of (key, partition, offset); null for a null key."""
    key, partition, offset = coordinates
    hashed, level = positive_hash(spark, key), F.lit(0)
    if earlier := numbering.earlier:
        level = F.aggregate(
            F.sequence(F.lit(earlier[-1]), F.lit(earlier[0])),
            F.lit(0),
            lambda found, n: F.when(hashed % n == partition, n).otherwise(found),
        )
    now = numbering.partitions
    level = F.when(hashed % now == partition, now).when(hashed.isNotNull(), level)

    def of_partition(number: Callable[[int], int]) -> Column:
        # A number by itself would be in the generated code, which each run would compile anew.
        numbers = (F.lit(number(n)).cast("bigint") for n in range(now))
        return F.get(F.array(*numbers), partition)

    before = of_partition(lambda n: numbering.base - numbering.read.get(n, 0))
    return level * of_partition(lambda _: numbering.size) + before + offset


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
        checked = (
            retries.join(F.broadcast(origins), [*COORDINATES], "left")
            .withColumn("origin", _own_origin())
            .withColumn("reason", _reason(self.topic))
        )
        usable = checked.where("reason IS NULL").withColumn("seq", F.col("origin.seq"))
        return usable.drop("reason", "origin", "origins"), _rejected(checked)

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
    """Return the retries in ranges of retry topics, by origin topic, for those that have any.

    Retries of other topics than `origins` are ignored. Headers cause no error: `matched` rejects
    retries without a usable origin.
    """
    topics = sorted({range_.topic for range_ in ranges})
    if not topics:
        return {}
    of_topics = [
        _of_topic(read([range_ for range_ in ranges if range_.topic == topic]), topic, origins)
        for topic in topics
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


def _own_origin() -> Column:
    """Return the newest of `origins` that has the retry's key, else the newest; null if none."""
    of_key = F.filter("origins", lambda origin: origin["key"].eqNullSafe(F.col("key")))
    first = F.lit(1)
    return F.coalesce(F.try_element_at(of_key, first), F.try_element_at("origins", first))


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


def _rejected(checked: DataFrame) -> DataFrame:
    text = F.col("key").cast("string")
    return checked.where("reason IS NOT NULL").select(
        F.when(F.is_valid_utf8(text), text).alias("key"),
        *("partition", "offset", "timestamp", "value"),
        F.lit(RecordKind.REJECTED.value).alias("kind"),
        "reason",
        *(F.col("key").alias("raw_key"), "headers"),
        *map(F.col, RETRY_NAMES),
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


def _quoted(name: str) -> Column:
    return F.coalesce(F.left(F.make_valid_utf8(_text(name)), F.lit(MAX_QUOTED)), F.lit("none"))


@dataclass(frozen=True)
class Appended:
    """Rows that were just appended to a history.

    `in_current_partition`: all with a key are where Kafka now puts it. `scattered` has the keys
    with records in several partitions, which nothing explains (model/record_order.py); else None.
    """

    tables: TableWriter
    written: Written
    in_current_partition: bool = False
    scattered: DataFrame | None = None

    @property
    def rows(self) -> DataFrame:
        """The rows, read when they are asked for."""
        return self.tables.rows_of(self.written)

    @property
    def count(self) -> int:
        """How many they are."""
        return self.written.rows

    @property
    def rejected(self) -> int:
        """How many of them are rejected."""
        return self.written.non_null("reason")


# Records that are read again come with the order that they have: a column each, null where they
# were not read before.
KNOWN_SEQ, KNOWN_SNAPSHOT = "known_seq", "known_snapshot"


def append_originals(
    run: CompactionRun, source: InputTopic, ranges: Sequence[OffsetRange]
) -> Appended:
    """Append the records of ranges of an input."""
    coordinates = F.col("key"), F.col("partition"), F.col("offset")
    numbering = run.numbering(source)
    raw, seq = run.records_of(ranges), seq_of(run.spark, coordinates, numbering)
    has_known = KNOWN_SEQ in raw.columns
    if has_known:
        seq = F.coalesce(KNOWN_SEQ, seq)
    numbered = raw.withColumn("seq", seq)
    passed = ("seq", *_known_snapshot(raw))
    events = analyzed_once(decoded, numbered, source.tables.fields, passed)
    written = _append(run, source, events)
    if has_known:
        return Appended(run.tables, written)
    return _in_order(run, source, numbering, written)


def _in_order(
    run: CompactionRun, source: InputTopic, numbering: Numbering, written: Written
) -> Appended:
    """Return rows that were just appended; those of scattered keys are numbered again."""
    lowest = written.minimum("seq")
    if lowest is None or lowest >= numbering.of_homes:
        is_current = lowest is None or lowest >= numbering.of_current
        return Appended(run.tables, written, in_current_partition=is_current)
    if not _has_scattered(run, source, numbering):
        return Appended(run.tables, written)
    rows = run.tables.rows_of(written)
    scattered = run.spark.sql(scattered_keys(numbering, "true"), records=rows)
    scattered = scattered.persist(StorageLevel.MEMORY_AND_DISK)
    if not scattered.count():
        return Appended(run.tables, written)
    ordered = _by_time(run, numbering, rows)
    table, coalesce = source.tables.history, run.few
    rewritten = run.tables.rewrite(table, written, ordered, coalesce=coalesce)
    return Appended(run.tables, rewritten, scattered=scattered)


def _has_scattered(run: CompactionRun, source: InputTopic, numbering: Numbering) -> bool:
    """Tell whether keys may be scattered; of a few records, that is asked without Spark."""
    if not run.few:
        return True
    history = run.tables.located(source.tables.history)
    sql = scattered_keys(numbering, f"h.snapshot = {run.number}").format(records=history.name)
    at = {history: run.tables.versions[history.name]}
    return bool(query.rows(run.settings, f"{sql} LIMIT 1", at))


def _by_time(run: CompactionRun, numbering: Numbering, rows: DataFrame) -> DataFrame:
    """Return rows of a history, those of scattered keys with their numbers by time."""
    numbers = run.spark.sql(by_time(numbering, "true"), records=rows)
    numbers = numbers.select(*COORDINATES, F.col("seq").alias("by_time"))
    numbers = F.broadcast(numbers) if run.few else numbers
    both = rows.join(numbers, [*COORDINATES], "left")
    return both.withColumn("seq", F.coalesce("by_time", "seq")).drop("by_time")


def append_corrections(
    run: CompactionRun, source: InputTopic, corrections: Corrections
) -> Appended:
    """Append the retries of an input's records; those of this run are in its history already."""
    run.plan_for_rows_of(source.tables.history)  # any of its records may be an origin
    usable, rejected = corrections.matched(run.tables.read(source.tables.history))
    passed = ("seq", *_known_snapshot(usable), *RETRY_NAMES)
    events = decoded(usable, source.tables.fields, passed)
    written = _append(run, source, events.unionByName(rejected, allowMissingColumns=True))
    return Appended(run.tables, written)


def _known_snapshot(records: DataFrame) -> tuple[str, ...]:
    return (KNOWN_SNAPSHOT,) if KNOWN_SNAPSHOT in records.columns else ()


def _append(run: CompactionRun, source: InputTopic, events: DataFrame) -> Written:
    history = source.tables.history
    if run.in_memory:  # sooner than Spark would write files; a number would be compiled, as above
        found = events.toArrow()
        own = pa.array([run.number] * found.num_rows, pa.int64())
        return run.tables.append(history, rows_of(history, found.append_column("snapshot", own)))
    number = F.lit(run.number).cast("bigint")
    known = [F.col(name) for name in _known_snapshot(events)]
    rows = events.withColumn("snapshot", F.coalesce(*known, number)).drop(KNOWN_SNAPSHOT)
    return run.tables.append(history, rows, coalesce=run.few)
