"""The freeze: a week's audience is written once and for good."""

import logging
import uuid
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shardpost.delta import log_statistics, snapshots, table_log
from shardpost.locks import exclusive
from shardpost.settings import Settings
from shardpost.spark.delta_files import write
from shardpost.weekly_email import frozen_weeks
from shardpost.weekly_email.model.frozen_week import FrozenWeek
from shardpost.weekly_email.model.prepared_week import PreparedWeek
from shardpost.weekly_email.model.tables import AUDIENCE_STATISTICS, AUDIENCES
from shardpost.weekly_email.spark import email_session
from shardpost.weekly_email.spark.audience import computed

log = logging.getLogger(__name__)

# Versions are kept for good, one a week, since the row of each week names its own. The files of old
# weeks go by `old_audiences.py`, and never by Delta's own clean-up.
FOR_GOOD_DAYS = 36_500


def freeze(settings: Settings, week: PreparedWeek, now: datetime) -> FrozenWeek:
    """Freeze the week's audience unless another run has just done so; return what is frozen."""
    spark = email_session.start(settings, len(week.shards))
    what = f"freezing the audience of {week.iso_week}"
    with exclusive(settings, "freeze", what, wait=settings.lock_wait):
        frozen = frozen_weeks.find(settings, week.iso_week)
        if frozen is None:
            snapshots.require_contacts(settings, week.snapshot)
            version = _write(settings, week, computed(spark, settings, week))
            frozen = _row(settings, week, version, now)
            frozen_weeks.commit(settings, frozen)
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
    files = [log_statistics.reduced(file, AUDIENCE_STATISTICS) for file in written.files]
    return table_log.commit(settings, AUDIENCES, version, files, left)


def _row(settings: Settings, week: PreparedWeek, version: int, now: datetime) -> FrozenWeek:
    return FrozenWeek(
        week=str(week.iso_week),
        snapshot=week.snapshot.number,
        as_of=week.as_of,
        frozen_at=now,
        audience_version=version,
        shards=week.partitions,
        recipients=frozen_weeks.recipients(settings, week.iso_week, version),
        country=week.snapshot.country,
    )
