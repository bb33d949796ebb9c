"""The audience of a week as a frame: computed from a snapshot, or as it was frozen.

A freeze writes it once and for good. The session has as many shards in parallel as the settings
allow.
"""

import logging
import uuid
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta import file_statistics, snapshots, table_log
from shardpost.holders.spark.held_positions import contacts, held_positions
from shardpost.locks import exclusive
from shardpost.settings import Settings
from shardpost.spark import driver
from shardpost.spark.delta_files import paths, read_files, write
from shardpost.spark.kafka_source import partition_column
from shardpost.weekly_email.audience_files import is_of_week
from shardpost.weekly_email.email_job import WEEKLY_EMAIL
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.email_request import PreparedWeek
from shardpost.weekly_email.model.week import FrozenWeek
from shardpost.weekly_email.model.week_tables import AUDIENCE_STATISTICS, AUDIENCES

WORKER_DAEMON = "shardpost.weekly_email.spark.worker_daemon"


def start(settings: Settings, shards: int) -> SparkSession:
    """Return the session of a run of that many shards."""
    at_once = min(settings.shards_at_once, shards)
    return driver.start_session(WEEKLY_EMAIL.name, at_once=at_once, worker_daemon=WORKER_DAEMON)


def members(spark: SparkSession, settings: Settings, week: PreparedWeek) -> DataFrame:
    """Return the members in the shards of a run: the columns of `computed`, and three more.

    `subscribed`, `name_now` and `email_now` are as of the newest snapshot; null for a client
    whose record was deleted.
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
        partition_column(spark, F.col("client"), week.partitions).alias("shard"),
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


log = logging.getLogger(__name__)

# Versions are kept for good, one a week, since the row of each week names its own. The files of old
# weeks go by `week_retention.py`, and never by Delta's own clean-up.
FOR_GOOD_DAYS = 36_500


def freeze(settings: Settings, week: PreparedWeek, now: datetime) -> FrozenWeek:
    """Freeze the week's audience unless another run has just done so; return what is frozen."""
    spark = start(settings, len(week.shards))
    what = f"freezing the audience of {week.iso_week}"
    with exclusive(settings, "freeze", what, wait=settings.lock_wait):
        frozen = FrozenWeeks(settings).find(week.iso_week)
        if frozen is None:
            snapshots.require_contacts(settings, week.snapshot)
            version = _write(settings, week, computed(spark, settings, week))
            frozen = _row(settings, week, version, now)
            FrozenWeeks(settings).commit(frozen)
            log.info("%s: audience frozen, of snapshot %d", week.iso_week, week.snapshot.number)
        return frozen


def _write(settings: Settings, week: PreparedWeek, audience: DataFrame) -> int:
    """Write the audience, in place of one that a crashed run left; return the table's version."""
    version = table_log.opened(settings, AUDIENCES, FOR_GOOD_DAYS).version()
    prefix = f"{week.iso_week}-"
    left = [f for f in table_log.sizes(settings, AUDIENCES, version) if f.startswith(prefix)]
    rows = audience.withColumn("week", F.lit(str(week.iso_week)))
    folder = f"{prefix}{uuid.uuid4()}"  # whatever a crashed run left has another name
    written = write(settings, AUDIENCES, rows, folder)
    files = [file_statistics.reduced(file, AUDIENCE_STATISTICS) for file in written.files]
    return table_log.commit(settings, AUDIENCES, version, files, left)


def _row(settings: Settings, week: PreparedWeek, version: int, now: datetime) -> FrozenWeek:
    return FrozenWeek(
        week=str(week.iso_week),
        snapshot=week.snapshot.number,
        as_of=week.as_of,
        frozen_at=now,
        audience_version=version,
        shards=week.partitions,
        recipients=FrozenWeeks(settings).recipients(week.iso_week, version),
        country=week.snapshot.country,
    )
