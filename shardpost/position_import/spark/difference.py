"""What is open, and the difference between that and a list.

Frames: `open_positions` (key, and the columns of the fields); `difference` (key, value, change,
and `first` and `last`: the fields as they are open, and as the list has them).
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta.query import version_at
from shardpost.delta.snapshot import Snapshot
from shardpost.holders.model.fields import POSITION_FIELDS, RecordKind
from shardpost.holders.model.view_tables import POSITIONS
from shardpost.holders.spark.decoding import decoded
from shardpost.position_import.model.plan import Change
from shardpost.position_import.spark.import_rows import FIELD_COLUMNS
from shardpost.settings import Settings
from shardpost.spark.delta_files import read


def open_positions(
    spark: SparkSession, settings: Settings, snapshot: Snapshot, unread: DataFrame | None
) -> DataFrame:
    """Return what is open at a snapshot, and after records that it has not read (kafka_source)."""
    table, version = snapshot.located(POSITIONS), version_at(snapshot, POSITIONS)
    latest = read(spark, settings, table, version)
    known = latest.where("is_open").select("key", *FIELD_COLUMNS)
    if unread is None:
        return known
    records = decoded(unread, POSITION_FIELDS).where(F.col("kind") != RecordKind.REJECTED.value)
    newest = F.max_by(F.struct("kind", *FIELD_COLUMNS), "offset").alias("newest")
    newer = records.groupBy("key").agg(newest).select("key", "newest.*")
    upserts = newer.where(F.col("kind") == RecordKind.UPSERT.value).drop("kind")
    return known.join(newer.select("key"), "key", "left_anti").unionByName(upserts)


def difference(states: DataFrame, known: DataFrame) -> DataFrame:
    """Return what a list (import_rows.states) changes of what is open, one row for each key."""
    fields = F.struct(*FIELD_COLUMNS)
    listed = states.select("key", "value", "is_good", fields.alias("now"))
    before = known.select("key", fields.alias("before"))
    both = listed.join(before, "key", "full_outer")
    change = (
        F.when(F.col("is_good").isNull(), Change.CLOSED.value)
        .when(~F.col("is_good"), F.when(F.col("before").isNotNull(), Change.LEFT.value))
        .when(F.col("before").isNull(), Change.NEW.value)
        .when(F.col("before") == F.col("now"), Change.EQUAL.value)
        .otherwise(Change.CHANGED.value)
    )
    found = both.select(
        "key", F.when(F.col("is_good"), F.col("value")).alias("value"), change.alias("change")
    )
    return found.where("change IS NOT NULL")
