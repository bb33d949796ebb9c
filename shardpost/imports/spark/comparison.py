"""What is known, how a list differs from what is open, the plan, and the records of the difference.

What is known is the newest snapshot, and what came to the topic after it: of what no compaction has
read, only an import's own records, which a run of it wrote that was broken off. After anything else
it is "compact first".

A record goes to the partition that the latest record of its key is in, whatever producer has put
it there: so it supersedes that one for Kafka's cleaner and for every reader, too.

Frames: `what_is_known` (key, is_open, partition, and the columns of the fields); `difference` (key,
value, change, partition: null of a new key).
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.dead_letters.model.letter_format import ORIGIN_TOPIC, header_text
from shardpost.delta import snapshots, stored_files
from shardpost.delta.query import version_at
from shardpost.delta.snapshot import LONGEST_EXCHANGE, MOST_UNKNOWN_NAMED, Snapshot
from shardpost.delta.storage import Tables
from shardpost.errors import ShardpostError
from shardpost.holders.inputs import require_plain
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.topic_state import ranges_to_read
from shardpost.holders.model.view_tables import INPUTS
from shardpost.holders.plausibility import known_at
from shardpost.holders.spark.decoding import decoded
from shardpost.imports.import_job import IMPORT_POSITIONS
from shardpost.imports.model.list_format import WATERMARK, InputName, Target
from shardpost.imports.model.plan import MOST_LISTED, MOST_SAMPLES, WRITTEN, Change, Plan
from shardpost.imports.model.source import HEADER, ImportRequest, is_id_of
from shardpost.imports.spark import source_rows
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import stable_ends
from shardpost.kafka.reading import open_transaction_at, read_to_end, record_of
from shardpost.kafka.records import OffsetRange
from shardpost.kafka.topic_metadata import changed_topics, partition_counts, topic_ids
from shardpost.logs import step
from shardpost.spark import driver
from shardpost.spark.delta_files import read
from shardpost.spark.kafka_source import partition_column, read_ranges

log = logging.getLogger(__name__)

COMPACT = "run `shardpost compact` first"


@dataclass(frozen=True)
class Base:
    """A snapshot, the ends of an input {partition: offset}, and what lies between them."""

    topic: str
    snapshot: Snapshot
    ends: dict[int, int]
    unread: list[OffsetRange]


def find_base(installation: Installation, into: InputName = "positions") -> Base:
    """Return what is known now; ShardpostError if a compaction has to run, or to be waited for."""
    require_plain(installation, into)
    snapshot = snapshots.newest(installation.tables)
    if snapshot is None:
        raise ShardpostError(f"there is no snapshot to compare a list with: {COMPACT}")
    topic = installation.kafka.topic(into)
    retries = installation.settings.retry_rules.retry_topic(topic)
    counts = partition_counts(installation.kafka, [topic, retries])
    known = {topic: id_ for topic, id_ in snapshot.topic_ids.items() if topic in counts}
    if changed := changed_topics(known, topic_ids(installation.kafka, counts)):
        raise not_compared("; ".join(changed.values()))
    reached = stable_ends(installation.kafka, counts)
    if hidden := [open_transaction_at(installation.kafka, one) for one in reached.open]:
        raise ShardpostError(
            f"open transaction at {hidden[0].begins}: later records cannot be read yet; Kafka"
            " ends it after a minute if its producer does not: run again then"
        )
    unread = ranges_to_read(snapshot.end_offsets, reached.stable)
    for range_ in unread:
        if range_.topic == retries:
            _require_no_corrections(installation.kafka, range_, topic)
    marks = reached.stable[topic]
    for partition, (_, end) in marks.items():
        read = snapshot.end_offsets.get(topic, {}).get(partition, 0)
        if read > end:
            raise not_compared(f"{topic}[{partition}]: read up to {read}, but it ends at {end}")
    own = [range_ for range_ in unread if range_.topic == topic]
    return Base(topic, snapshot, {partition: end for partition, (_, end) in marks.items()}, own)


def _require_no_corrections(kafka: Kafka, retries: OffsetRange, topic: str) -> None:
    """Refuse a retry of a record of the topic; retries of other topics change no table of it."""
    found = read_to_end(kafka, retries.topic_partition, start=retries.first, committed=True)
    for record in map(record_of, found):
        if header_text(dict(record.headers).get(ORIGIN_TOPIC)) == topic:
            raise not_compared(f"{record.coordinates}: a correction that is not in the tables yet")


def not_compared(why: str) -> ShardpostError:
    """Return the error that the tables do not have all that is there."""
    return ShardpostError(f"{why}: a list cannot be compared with old tables; {COMPACT}")


def what_is_known(
    spark: SparkSession, tables: Tables, target: Target, base: Base, unread: DataFrame | None
) -> DataFrame:
    """Return what is known at a snapshot, and after records that it has not read (kafka_source)."""
    table = INPUTS[target.topic].latest
    located, version = base.snapshot.located(table), version_at(base.snapshot, table)
    columns = ("is_open", "partition", *source_rows.field_columns(target))
    known = read(spark, tables, located, version).select("key", *columns)
    if unread is None:
        return known
    records = decoded(unread, target.fields).where(F.col("kind") != RecordKind.REJECTED.value)
    records = records.withColumn("is_open", F.col("kind") == RecordKind.UPSERT.value)
    newest = F.max_by(F.struct(*columns), "offset").alias("newest")
    newer = records.groupBy("key").agg(newest).select("key", "newest.*")
    return known.join(newer, "key", "left_anti").unionByName(newer)


def difference(states: DataFrame, known: DataFrame, target: Target) -> DataFrame:
    """Return what a list (source_rows.py) changes of what is open, one row for each key.

    An increment closes nothing that it lacks.
    """
    fields = F.struct(*source_rows.field_columns(target))
    listed = states.select("key", "value", "is_good", fields.alias("now"))
    before = known.select("key", "partition", F.when(F.col("is_open"), fields).alias("before"))
    both = listed.join(before, "key", "full_outer")
    lacking = Change.NOT_LISTED if WATERMARK in target.all_columns else Change.CLOSED
    change = (
        F.when(F.col("is_good").isNull(), F.when(F.col("before").isNotNull(), lacking.value))
        .when(~F.col("is_good"), F.when(F.col("before").isNotNull(), Change.LEFT.value))
        .when(F.col("before").isNull(), Change.NEW.value)
        .when(F.col("before").eqNullSafe(F.col("now")), Change.EQUAL.value)
        .otherwise(Change.CHANGED.value)
    )
    value = F.when(F.col("is_good"), F.col("value")).alias("value")
    exchange = ["now.exchange"] if "exchange" in source_rows.field_columns(target) else []
    found = both.select("key", value, change.alias("change"), "partition", *exchange)
    return found.where("change IS NOT NULL")


# Two hashes of 64 bits of each row, whose sums do not depend on the order of the rows.
_SEEDS = (1, 2)


@dataclass(frozen=True)
class Comparison:
    """A plan, the id of the list's content, and that of its own records that are not compacted.

    `records` are (key, value, partition) of what is written; a tombstone has no value.
    """

    plan: Plan
    content: str
    unread_id: str | None
    records: DataFrame


@contextmanager
def compare(
    installation: Installation, base: Base, request: ImportRequest, largest: int
) -> Iterator[Comparison]:
    """Give the comparison of a list with what is open.

    `largest` is how many bytes the topic accepts. ShardpostError if the list cannot be read, or
    others' records are unread.
    """
    target, since = request.target, source_rows.last_watermark(installation.kafka, request)
    spark = driver.start_session(IMPORT_POSITIONS.name)
    unread = read_ranges(spark, installation.kafka, base.unread) if base.unread else None
    unread_id = None if unread is None else _only_import(unread, base.topic)
    with ExitStack() as at_end:
        remove = partial(stored_files.delete_folder, installation.tables, source_rows.LISTED)
        remove()  # of a run that was killed
        at_end.callback(_clean_up, remove)
        source, ignored = source_rows.read_source(spark, installation, request.source, target)
        rows = source_rows.as_records(source, target, largest).persist(StorageLevel.MEMORY_AND_DISK)
        at_end.callback(_clean_up, rows.unpersist)
        with source_rows.source_errors(str(request.source)):
            rows = source_rows.increment(rows, since) if target.watermark else rows
            count, without_id, content = _counted(rows)
        driver.divide_shuffles(spark, count)
        if unread_id and not is_id_of(unread_id, request.import_id, content):
            raise not_compared(f"{base.topic} has records of another import, {unread_id}")
        step("difference")
        by_key = source_rows.states(rows, target)
        known = what_is_known(spark, installation.tables, target, base, unread)
        changes = difference(by_key, known, target).persist(StorageLevel.MEMORY_AND_DISK)
        at_end.callback(_clean_up, changes.unpersist)
        bad = source_rows.rejected(rows, by_key, target)
        plan = _plan(
            changes,
            bad,
            rows=count,
            without_id=without_id,
            ignored=ignored,
            unknown_exchanges=_unknown_exchanges(installation.tables, base.snapshot, changes),
            target=target,
            watermark=source_rows.next_watermark(rows, bad, since) if target.watermark else None,
        )
        place = F.coalesce("partition", _new_place(spark, known, len(base.ends)))
        is_written = F.col("change").isin(*(str(change) for change in WRITTEN))
        written = changes.where(is_written).select("key", "value", place.alias("partition"))
        yield Comparison(plan, content, unread_id, written)


def _clean_up(work: Callable[[], object]) -> None:
    """Do what is due at the end; an import that was applied stays so where that fails."""
    try:
        with driver.job_errors():
            work()
    except ShardpostError as error:
        log.warning("not cleaned up after the comparison: %s; the next import does it", error)


def _only_import(unread: DataFrame, topic: str) -> str | None:
    """Return the import id that all of these records have; ShardpostError if there are others."""
    own = F.filter("headers", lambda header: header.getField("key") == HEADER)
    found = unread.select(F.get(own, F.lit(0)).getField("value").cast("string").alias("id"))
    ids = [row[0] for row in found.distinct().limit(2).collect()]
    if len(ids) > 1 or None in ids:
        raise not_compared(f"{topic} has records that are not in the tables yet")
    return ids[0] if ids else None


def _counted(rows: DataFrame) -> tuple[int, int, str]:
    """Return how many rows a list has, how many without an id, and the id of their content."""
    text = F.to_json("row", {"ignoreNullFields": "false"})
    hashed = {seed: F.xxhash64(F.lit(seed), text).cast("decimal(38,0)") for seed in _SEEDS}
    sums = [F.sum(one).alias(f"sum{seed}") for seed, one in hashed.items()]
    without_id = F.count_if(F.col("key").isNull()).alias("without_id")
    [found] = rows.agg(F.count(F.lit(1)).alias("count"), without_id, *sums).collect()
    hashes = tuple(int(found[f"sum{seed}"] or 0) for seed in _SEEDS)
    content = hashlib.sha256(repr((found["count"], hashes)).encode()).hexdigest()[:16]
    return found["count"], found["without_id"], content


def _plan(changes: DataFrame, rejected: DataFrame, **more: Any) -> Plan:
    def lowest_ids(change: Change) -> tuple[str, ...]:
        ids = changes.where(F.col("change") == change.value).select("key").orderBy("key")
        return tuple(row[0] for row in ids.limit(MOST_SAMPLES).collect())

    counts = {Change(row[0]): int(row[1]) for row in changes.groupBy("change").count().collect()}
    listed = rejected.limit(MOST_LISTED).collect()
    return Plan(
        counts=counts,
        open_positions=sum(n for change, n in counts.items() if change is not Change.NEW),
        samples={change: lowest_ids(change) for change in WRITTEN if change in counts},
        rejected=tuple({"reason": one["reason"], "row": one["row"].asDict()} for one in listed),
        rejected_rows=len(listed) if len(listed) < MOST_LISTED else rejected.count(),
        **more,
    )


def _unknown_exchanges(tables: Tables, view: Snapshot, changes: DataFrame) -> dict[str, int]:
    """Count the positions of the list on exchanges that have no country, of the largest."""
    if "exchange" not in changes.columns:
        return {}
    known = known_at(tables, view)
    listed = changes.where(F.col("change").isin(Change.NEW, Change.CHANGED, Change.EQUAL))
    code = F.left("exchange", F.lit(LONGEST_EXCHANGE)).alias("code")
    counts = listed.where(~F.col("exchange").isin(*known)).groupBy(code).count()
    return dict(counts.orderBy(F.desc("count"), "code").limit(MOST_UNKNOWN_NAMED).collect())


def _new_place(spark: SparkSession, known: DataFrame, partitions: int) -> Column:
    """Return the partition of a new key: that of Kafka's partitioner.

    Or, if that explains more of the places of the known ones, that of librdkafka's default.
    """
    kafkas = partition_column(spark, F.col("key"), partitions)
    other = (F.crc32(F.col("key").cast("binary")) % partitions).cast("int")
    counts = (F.count_if(F.col("partition") == place) for place in (kafkas, other))
    [(of_kafka, of_other)] = known.agg(*counts).collect()
    return other if of_other > of_kafka else kafkas
