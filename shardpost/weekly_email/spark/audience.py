"""The members of a week's audience, as a frame: computed from a snapshot, or as it was frozen."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta import table_log
from shardpost.holders.spark.held_positions import contacts, held_positions
from shardpost.settings import Settings
from shardpost.spark.delta_files import paths, read_files
from shardpost.spark.kafka_partitioning import partition_of
from shardpost.weekly_email.audience_files import is_of_week
from shardpost.weekly_email.model.frozen_week import FrozenWeek
from shardpost.weekly_email.model.prepared_week import PreparedWeek
from shardpost.weekly_email.model.tables import AUDIENCES


def members(spark: SparkSession, settings: Settings, week: PreparedWeek) -> DataFrame:
    """Return the members in the shards of a run: the columns of `computed`, and three more.

    `subscribed`, `name_now` and `email_now` are as of the newest snapshot; null for a client that
    has no record any more.
    """
    audience = (
        frozen_audience(spark, settings, week.frozen)
        if week.frozen
        else computed(spark, settings, week)
    )
    chosen = audience.where(F.col("shard").isin(week.shards))
    current = contacts(spark, settings, week.snapshot).select(
        *("client", "subscribed"),
        F.col("name").alias("name_now"),
        F.col("email").alias("email_now"),
    )
    return chosen.join(current, "client", "left")


def computed(spark: SparkSession, settings: Settings, week: PreparedWeek) -> DataFrame:
    """Return (client, name, email, has_contact, positions, shard) as of the week's instant.

    Contact is the snapshot's; positions are in the order of their ids.
    """
    holders = held_positions(spark, settings, week.snapshot, week.as_of)
    known = contacts(spark, settings, week.snapshot).select(
        "client", "name", "email", F.lit(True).alias("known")
    )
    return holders.join(known, "client", "left").select(
        *("client", "name", "email"),
        F.coalesce("known", F.lit(False)).alias("has_contact"),
        "positions",
        partition_of(spark, F.col("client"), week.partitions).alias("shard"),
    )


def frozen_audience(spark: SparkSession, settings: Settings, frozen: FrozenWeek) -> DataFrame:
    """Return the audience of a frozen week: the columns of `computed`.

    Its version names the files of other weeks, too, which may have been erased since.
    """
    frozen.require_audience()
    names = table_log.sizes(settings, AUDIENCES, frozen.audience_version)
    own = [name for name in names if is_of_week(name, frozen.week)]
    rows = read_files(spark, AUDIENCES, paths(settings, AUDIENCES, own))
    return rows.where(F.col("week") == frozen.week).drop("week")
