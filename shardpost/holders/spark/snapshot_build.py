"""One compaction.

From offset ranges to new versions of all tables, and the snapshot that names them.
"""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost import __version__
from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.delta.table import Table
from shardpost.holders.job import COMPACT_POSITIONS
from shardpost.holders.model import tables
from shardpost.holders.model.record_order import HOME, OFFSET_BITS
from shardpost.holders.spark import fold
from shardpost.holders.spark.corrections import RETRY, Corrections
from shardpost.holders.spark.decoding import (
    CLIENT_FIELDS,
    EXCHANGE_FIELDS,
    POSITION_FIELDS,
    Field,
    decoded,
)
from shardpost.holders.spark.holder_updates import HolderUpdates
from shardpost.holders.spark.record_order import seq_of
from shardpost.holders.spark.rejected_records import report_idle, report_rejected
from shardpost.holders.spark.table_writer import TableWriter, summed
from shardpost.kafka.offset_ranges import OffsetRange, Offsets
from shardpost.settings import Settings
from shardpost.spark import session
from shardpost.spark.delta_files import columns_of
from shardpost.spark.kafka_source import read_ranges
from shardpost.steps import step
from shardpost.topic_names import TopicName

log = logging.getLogger(__name__)

# topic of the contract -> its history, its latest-per-key table, how it is decoded
INPUTS: dict[TopicName, tuple[Table, Table, tuple[Field, ...]]] = {
    "positions": (tables.POSITION_EVENTS, tables.POSITIONS, POSITION_FIELDS),
    "clients": (tables.CLIENT_EVENTS, tables.CLIENTS, CLIENT_FIELDS),
    "exchanges": (tables.EXCHANGE_EVENTS, tables.EXCHANGES, EXCHANGE_FIELDS),
}


# Up to so many records, keys are broadcast rather than tables shuffled.
FEW = 200_000
# Up to so many, the places of the latest ones are: some 30 bytes each, in the driver too.
MANY = 20_000_000
_RETRIED = "cast(retry_offset is not null as int)"
_OPENED = "cast(is_open as int) - coalesce(cast(old_is_open as int), 0)"


@dataclass(frozen=True)
class Changes:
    """What became of a table: `fold.changes`, kept, and how many more rows of it are open.

    `retries` is how many of the changes are by retries.
    """

    rows: DataFrame
    opened: int
    retries: int


@dataclass(frozen=True)
class Appended:
    """Rows that a history was given: how many are rejected, and whether all others are at home.

    At home is in the newest home of their key (kafka/partitioning.py).
    """

    rows: DataFrame
    rejected: int
    at_home: bool


@dataclass(frozen=True)
class TopicUpdate:
    """What a topic brought: its new records, what they changed, how many were rejected.

    And how many retries could be decoded, and changed nothing.
    """

    topic: str
    new: DataFrame
    changes: Changes
    rejected: int
    idle: int


@dataclass(frozen=True)
class RunCounts:
    """What a run did besides: records rejected, retries read, and those of them now the latest.

    Those `without_effect` are the others that could be decoded.
    """

    rejected: int = 0
    retries: int = 0
    applied: int = 0
    without_effect: int = 0


class SnapshotBuild:
    """One run after the last snapshot. Writes tables; commits nothing."""

    def __init__(
        self, settings: Settings, partitions: Mapping[str, int], last: Snapshot | None, run: str
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._last = last
        self._run = run
        self._number = last.number + 1 if last else 1
        self._spark: SparkSession = session.start(COMPACT_POSITIONS.name)
        self._view = TableWriter(self._spark, settings, last, run)
        self._few = True
        self.done = RunCounts()

    def snapshot(
        self, ranges: Sequence[OffsetRange], ends: Offsets, looked_at: datetime
    ) -> Snapshot:
        """Write all tables up to those ends and return the snapshot that names their versions."""
        self._plan_for(_length(ranges))
        found = self._all_caught_up(ranges)
        counts = self._counts(found["positions"].changes if "positions" in found else None)
        return Snapshot(
            number=self._number,
            committed_at=datetime.now(UTC),
            looked_at=looked_at,
            end_offsets=ends,
            tables=dict(self._view.versions),
            counts=counts,
            code_version=__version__,
            run=self._run,
            country=self._settings.country,
            shards=self._shards,
        )

    @property
    def _shards(self) -> int:
        return self._partitions[self._settings.topic("share-holders")]

    def _plan_for(self, records: int) -> None:
        """Choose between the plans for a small increment and for reprocessing."""
        self._few = records <= FEW
        cores = self._spark.sparkContext.defaultParallelism
        self._spark.conf.set("spark.sql.shuffle.partitions", cores if self._few else 4 * cores)

    def _all_caught_up(self, ranges: Sequence[OffsetRange]) -> dict[TopicName, TopicUpdate]:
        """Read all topics, side by side, and keep what was rejected; return what each brought."""
        origins = [self._settings.topic(name) for name in INPUTS]
        of_retries = [range_ for range_ in ranges if range_.topic not in origins]
        retries = Corrections(self._spark, self._settings, of_retries, origins)
        with ThreadPoolExecutor(len(INPUTS)) as pool:  # for a few records, Spark mostly plans
            all_ = pool.map(lambda name: self._catch_up(name, ranges, retries), INPUTS)
            found = {name: one for name, one in zip(INPUTS, all_, strict=True) if one}
        self.done = RunCounts(
            sum(one.rejected for one in found.values()),
            sum(retries.counts.values()),
            sum(one.changes.retries for one in found.values()),
            sum(one.idle for one in found.values()),
        )
        for one in found.values():
            if one.rejected:
                self._keep_rejected(one.topic, one.new, one.rejected)
        return found

    def _catch_up(
        self, name: TopicName, ranges: Sequence[OffsetRange], retries: Corrections
    ) -> TopicUpdate | None:
        """Read one topic's new records, and retries of its records, into history and table."""
        topic = self._settings.topic(name)
        own = [range_ for range_ in ranges if range_.topic == topic]
        if not own and not retries.counts.get(topic):
            return None
        history, table, fields = INPUTS[name]
        step(f"{name} history")
        originals = retried = None
        if own:
            originals = self._append(history, self._events(topic, own, fields), topic)
        if retries.counts.get(topic):
            found = retries.of(topic, self._view.read(history))
            retried = self._append(history, self._retried(topic, *found, fields), topic)
        new = [one for one in (originals, retried) if one]
        step(f"{name} table")
        latest = self._newest(table, originals, retried, many=_length(own) > MANY)
        changes = self._changed(table, latest)
        idle = 0
        if retried:
            idle = retries.counts[topic] - retried.rejected - changes.retries
        if retried and idle:
            report_idle(topic, idle, retried.rows, changes.rows)
        rows_ = reduce(DataFrame.unionByName, (one.rows for one in new))
        return TopicUpdate(topic, rows_, changes, sum(one.rejected for one in new), idle)

    def _append(self, history: Table, events: DataFrame, topic: str) -> Appended:
        written = self._view.append(history, events, few=self._few)
        lowest = written.minimum("seq")
        home = (HOME + self._partitions[topic]) << OFFSET_BITS
        at_home = lowest is None or lowest >= home
        return Appended(self._view.rows_of(written), written.non_null("reason"), at_home)

    def _events(
        self, topic: str, ranges: Sequence[OffsetRange], fields: tuple[Field, ...]
    ) -> DataFrame:
        raw = self._placed(topic, read_ranges(self._spark, self._settings, ranges))
        return self._numbered(decoded(raw, fields, ("seq",)))

    def _retried(
        self, topic: str, usable: DataFrame, rejected: DataFrame, fields: tuple[Field, ...]
    ) -> DataFrame:
        """Return the retries of records of a topic as rows of its history."""
        events = decoded(self._placed(topic, usable), fields, ("seq", *RETRY))
        return self._numbered(events.unionByName(rejected, allowMissingColumns=True))

    def _placed(self, topic: str, raw: DataFrame) -> DataFrame:
        seq = seq_of(
            self._spark, F.col("key"), F.col("partition"), F.col("offset"), self._partitions[topic]
        )
        return raw.withColumn("seq", seq)

    def _numbered(self, events: DataFrame) -> DataFrame:
        return events.withColumn("snapshot", F.lit(self._number).cast("bigint"))

    def _keep_rejected(self, topic: str, new: DataFrame, count: int) -> None:
        """Keep whole, count and name what could not be decoded."""
        columns = ("timestamp", "value", "headers", "reason", "snapshot")
        whole = new.where(F.col("kind") == fold.REJECTED).select(
            F.coalesce("retry_topic", F.lit(topic)).alias("topic"),
            F.coalesce("retry_partition", "partition").alias("partition"),
            F.coalesce("retry_offset", "offset").alias("offset"),
            *(F.col("raw_key").alias("key"), *columns),
        )
        report_rejected(topic, count, whole)
        self._view.append(tables.REJECTED_RECORDS, whole)

    def _newest(
        self, table: Table, originals: Appended | None, retried: Appended | None, *, many: bool
    ) -> DataFrame:
        """Return the latest of the new records of each key, as rows of that table."""
        columns, found = columns_of(table), []
        if originals:
            latest = (
                fold.latest_at_home(originals.rows)
                if originals.at_home and not (many or self._few)
                else fold.latest_per_key(originals.rows, few=self._few)
            )
            found.append(fold.as_rows(latest, columns))
        if retried is None:
            return found[0]
        decodable = retried.rows.where(F.col("kind") != fold.REJECTED)
        found.append(fold.as_rows(decodable, columns))
        return fold.latest_with_retries(reduce(DataFrame.unionByName, found))

    def _changed(self, table: Table, latest: DataFrame) -> Changes:
        known = self._view.read_with_files(table)
        if self._view.is_empty(table):  # read what was written rather than keep what to write
            first = self._view.rows_of(self._view.append(table, latest, few=self._few))
            rows_ = fold.changes(first, known, few=self._few)
            (opened, retries), _ = summed(rows_, _OPENED, _RETRIED)
            return Changes(rows_, opened, retries)
        rows_ = fold.changes(latest, known, few=self._few).persist(StorageLevel.MEMORY_AND_DISK)
        (opened, retries), files = summed(rows_, _OPENED, _RETRIED)
        self._view.upsert(table, rows_.select(*latest.columns), files, few=self._few)
        return Changes(rows_, opened, retries)

    def _counts(self, positions: Changes | None) -> Counts:
        """Update the holders by what changed of positions; return the counts of the whole view."""
        before = self._last.counts if self._last else Counts()
        table = HolderUpdates(
            self._spark, self._settings, self._view, self._last, self._number, self._shards
        )
        holders, held = table.update(positions.rows if positions else None, few=self._few)
        return Counts(
            before.positions + (positions.opened if positions else 0),
            before.holders + holders,
            before.held + held,
            before.rejected + self.done.rejected,
        )


def _length(ranges: Sequence[OffsetRange]) -> int:
    return sum(range_.size for range_ in ranges)
