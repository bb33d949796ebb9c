"""The audience of a week as a frame: computed from a snapshot, or as frozen.

A freeze writes it into a folder of its own, which the row of its week names for good.
"""

import logging
import uuid
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shardpost.delta import storage, table_log
from shardpost.delta.storage import Tables
from shardpost.holders.spark.held_positions import contact_languages, contacts, held_positions
from shardpost.installation import Installation
from shardpost.locks.locks import exclusive
from shardpost.logs import step
from shardpost.spark import driver
from shardpost.spark.delta_files import read, write
from shardpost.spark.kafka_source import partition_column
from shardpost.weekly_email.email_job import WEEKLY_EMAIL, EmailRequest
from shardpost.weekly_email.frozen_weeks import RECIPIENTS, FrozenWeeks
from shardpost.weekly_email.model.week import FrozenWeek
from shardpost.weekly_email.model.week_tables import audience_table
from shardpost.weekly_email.prepared_week import PreparedWeek, prepare_week, require_no_collapse
from shardpost.weekly_email.send_plan import BATCH
from shardpost.weekly_email.week_state import WeekState

WORKER_DAEMON = "shardpost.weekly_email.spark.send"
# Shards mailed in parallel on one machine with master local[*]; each takes about 40 MB.
SHARDS_AT_ONCE = 8


log = logging.getLogger(__name__)


class WeekFrames:
    """The audience of one week, in a session that processes the run's shards in parallel.

    Each frame has the columns (client, name, email, has_contact, positions, shard, language);
    positions are sorted by id.
    """

    def __init__(self, tables: Tables, week: PreparedWeek) -> None:
        self._tables = tables
        self._week = week
        at_once = min(SHARDS_AT_ONCE, len(week.shards))
        self.spark = driver.start_session(
            WEEKLY_EMAIL.name, at_once=at_once, worker_daemon=WORKER_DAEMON
        )
        driver.divide_shuffles(self.spark, week.snapshot.counts.positions)
        self.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH)

    def members(self) -> DataFrame:
        """Return the members in the run's shards, with three more columns.

        `subscribed`, `name_now` and `email_now` are as of the newest snapshot; null for a client
        whose record was deleted.
        """
        if frozen := self._week.frozen:  # as it is now, without clients erased since
            table = audience_table(frozen.audience)
            audience = read(self.spark, self._tables, table, None).drop("week")
        else:
            audience = self.computed()
        current = self._contacts().select(
            *("client", "subscribed"),
            F.col("name").alias("name_now"),
            F.col("email").alias("email_now"),
        )
        chosen = audience.where(F.col("shard").isin(self._week.shards))
        return chosen.join(current, "client", "left")

    def computed(self) -> DataFrame:
        """Return the audience as of the week's instant; contacts are the snapshot's."""
        week = self._week
        known = self._contacts().select("client", "name", "email", F.lit(True).alias("known"))
        languages = contact_languages(self.spark, self._tables, week.snapshot)
        holders = held_positions(self.spark, self._tables, week.snapshot, week.as_of)
        found = holders.join(known, "client", "left").join(languages, "client", "left")
        return found.select(
            *("client", "name", "email"),
            F.coalesce("known", F.lit(False)).alias("has_contact"),
            "positions",
            partition_column(self.spark, F.col("client"), week.ledger.partitions).alias("shard"),
            "language",
        )

    def _contacts(self) -> DataFrame:
        return contacts(self.spark, self._tables, self._week.snapshot)


def freeze(installation: Installation, request: EmailRequest, week: PreparedWeek) -> PreparedWeek:
    """Freeze the audience of a week unless another run just did; return the frozen week.

    `week` was prepared before Spark started. It is checked again under the lock, and after the
    audience is written: if tables were swapped by then, it is computed again, so that no week is
    frozen from tables that are no longer in use. Raises CollapseError for an audience far smaller
    than the last one, unless the request accepts it.
    """
    WeekFrames(installation.tables, week)  # Spark starts even while another run holds the lock
    what = f"freezing the audience of {week.iso_week}"
    with exclusive(installation.files, "freeze", what, wait=installation.files.lock_wait):
        week = prepare_week(installation, request, WeekState(installation, request.week))
        weeks = FrozenWeeks(installation.tables)
        while week.frozen is None:
            version = weeks.version()
            audience = _written(installation.tables, week)
            step("audience written")
            now = prepare_week(installation, request, WeekState(installation, request.week))
            if week.snapshot.is_in_force(now.snapshot):
                frozen = _frozen(installation, request, week, audience)
                weeks.commit(frozen, version)
                log.info("%s: frozen from snapshot %d", week.iso_week, frozen.snapshot)
                return replace(week, frozen=frozen)
            log.info(
                "%s: tables were swapped between snapshots %d and %d: computing the audience again",
                *(week.iso_week, week.snapshot.number, now.snapshot.number),
            )
            week = now
    return week


def _frozen(
    installation: Installation, request: EmailRequest, week: PreparedWeek, audience: str
) -> FrozenWeek:
    counts = FrozenWeeks(installation.tables).counts(audience)
    if not request.accept_drop:
        require_no_collapse(week.state, counts, week.snapshot.counts)
    return FrozenWeek(
        week=str(week.iso_week),
        audience=audience,
        snapshot=week.snapshot.number,
        as_of=week.as_of,
        frozen_at=request.now,
        shards=week.ledger.partitions,
        recipients=counts[RECIPIENTS],
        rule=week.snapshot.rule,
        unknown_positions=week.snapshot.counts.unknown.unknown_positions,
    )


def _written(tables: Tables, week: PreparedWeek) -> str:
    """Compute and write an audience; return the name of its new, unique folder."""
    audience = f"{week.iso_week}.{uuid.uuid4().hex}"
    rows = WeekFrames(tables, week).computed().withColumn("week", F.lit(str(week.iso_week)))
    table = audience_table(audience)
    version = storage.writable(tables, table).version()
    table_log.commit(tables, table, version, write(tables, table, rows, "frozen").files)
    return audience
