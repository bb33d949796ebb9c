"""The audience of a week.

Everybody who holds stock that counts as of an instant, computed, frozen, read.
"""

import logging
import uuid
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta import table_log
from shardpost.delta.snapshot import Snapshot
from shardpost.holders.model.as_of import RELATIONS, us_positions
from shardpost.holders.model.tables import CLIENTS
from shardpost.holders.spark.position_order import order_of
from shardpost.locks import exclusive
from shardpost.settings import Settings
from shardpost.spark.delta_files import read, write
from shardpost.spark.kafka_partitioning import partition_of
from shardpost.weekly_email import frozen_weeks
from shardpost.weekly_email.frozen_weeks import FrozenWeek
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.tables import AUDIENCES

log = logging.getLogger(__name__)

# An audience is kept for good: it is one version a week, and `emails` asks for any week.
FOR_GOOD_DAYS = 36_500

_SHOWN = ("position", "ticker", "amount", "exchange")


def computed(
    spark: SparkSession, settings: Settings, snapshot: Snapshot, as_of: datetime, shards: int
) -> DataFrame:
    """Return (client, name, email, has_contact, positions, shard) as of that instant.

    Contact is the snapshot's; positions are in the order of their ids; `shard` is the
    client's of so many.
    """
    for table in RELATIONS:
        frame = read(spark, settings, table, snapshot.tables[table.name])
        frame.createOrReplaceTempView(table.name)
    held = spark.sql(us_positions(snapshot.country, as_of))
    holders = held.groupBy("client").agg(_in_order().alias("positions"))
    contacts = _clients(spark, settings, snapshot).select(
        F.col("key").alias("client"), "name", "email", F.lit(True).alias("known")
    )
    return holders.join(contacts, "client", "left").select(
        *("client", "name", "email"),
        F.coalesce("known", F.lit(False)).alias("has_contact"),
        "positions",
        partition_of(spark, F.col("client"), shards).alias("shard"),
    )


def with_subscription(
    spark: SparkSession, settings: Settings, audience: DataFrame, snapshot: Snapshot
) -> DataFrame:
    """Add `subscribed` as the snapshot says; null for a client that has no record any more."""
    now = _clients(spark, settings, snapshot).select(F.col("key").alias("client"), "subscribed")
    return audience.join(now, "client", "left")


def freeze(
    spark: SparkSession, settings: Settings, week: IsoWeek, snapshot: Snapshot, now: datetime
) -> FrozenWeek:
    """Write a week's audience once and for good; return what is frozen, whoever did it."""
    what = f"freezing the audience of {week}"
    with exclusive(settings, "freeze", what, wait=settings.lock_wait):
        frozen = frozen_weeks.find(settings, week)
        if frozen is None:
            frozen = _frozen(spark, settings, week, snapshot, now)
            frozen_weeks.commit(settings, frozen)
            log.info("%s frozen from snapshot %d: %s", week, snapshot.number, frozen)
        return frozen


def frozen_audience(spark: SparkSession, settings: Settings, frozen: FrozenWeek) -> DataFrame:
    """Return the frozen audience, with the columns of `computed`."""
    rows = read(spark, settings, AUDIENCES, frozen.audience_version)
    return rows.where(F.col("week") == frozen.week).drop("week")


def _frozen(
    spark: SparkSession, settings: Settings, week: IsoWeek, snapshot: Snapshot, now: datetime
) -> FrozenWeek:
    from shardpost.kafka.offsets import partition_counts

    topic = settings.topic("weekly-emails")
    shards = partition_counts(settings, [topic])[topic]
    rows = computed(spark, settings, snapshot, week.end, shards).withColumn(
        "week", F.lit(str(week))
    )
    version = _write(settings, rows, week)
    recipients = sum(frozen_weeks.sizes(settings, week, version).values())
    return FrozenWeek(
        *(str(week), snapshot.number, week.end, now, version, shards, recipients, snapshot.country)
    )


def _write(settings: Settings, rows: DataFrame, week: IsoWeek) -> int:
    """Write the week's audience in place of one that a broken off run left; return the version."""
    table_log.create(settings, AUDIENCES, FOR_GOOD_DAYS)
    version = frozen_weeks.audience_version(settings)
    folder = f"{week}-{uuid.uuid4()}"  # whatever a broken off run left has another name
    left = [f for f in table_log.sizes(settings, AUDIENCES, version) if f.startswith(f"{week}-")]
    written = write(settings, AUDIENCES, rows, folder)
    return table_log.commit(settings, AUDIENCES, version, written.files, left)


def _clients(spark: SparkSession, settings: Settings, snapshot: Snapshot) -> DataFrame:
    return read(spark, settings, CLIENTS, snapshot.tables[CLIENTS.name]).where("is_open")


def _in_order() -> Column:
    """Collect positions in the order of their ids."""
    ranked = F.struct(*order_of(F.col("position")), *_SHOWN)
    return F.transform(
        F.sort_array(F.collect_list(ranked)), lambda row: F.struct(*(row[name] for name in _SHOWN))
    )
