"""One compaction.

From offset ranges to new versions of all tables, and the snapshot that names them.
"""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost import __version__
from shardpost.domain import tables as t
from shardpost.domain.offsets import Range
from shardpost.domain.partitioning import HOME, OFFSET_BITS
from shardpost.domain.snapshot import Counts, Offsets, Snapshot
from shardpost.settings import Settings
from spark_jobs import fold, kafka_placement, session
from spark_jobs.decode import CLIENT_FIELDS, EXCHANGE_FIELDS, POSITION_FIELDS, Field, decoded
from spark_jobs.delta_files import columns_of
from spark_jobs.holders import Holders
from spark_jobs.kafka_source import read_ranges
from spark_jobs.rejected import report_rejected
from spark_jobs.retries import RETRY, Retries, is_retry
from spark_jobs.steps import step
from spark_jobs.view import View, summed

log = logging.getLogger(__name__)

# topic of the contract -> its history, its latest-per-key table, how it is decoded
INPUTS: dict[str, tuple[t.Table, t.Table, tuple[Field, ...]]] = {
    "positions": (t.POSITION_EVENTS, t.POSITIONS, POSITION_FIELDS),
    "clients": (t.CLIENT_EVENTS, t.CLIENTS, CLIENT_FIELDS),
    "exchanges": (t.EXCHANGE_EVENTS, t.EXCHANGES, EXCHANGE_FIELDS),
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
class CaughtUp:
    """What a topic brought: its new records, what they changed, how many were rejected."""

    topic: str
    new: DataFrame
    changes: Changes
    rejected: int


@dataclass(frozen=True)
class Done:
    """What a run did besides: records rejected, retries read, and those of them now the latest."""

    rejected: int = 0
    retries: int = 0
    applied: int = 0


class Compaction:
    """One run after the last snapshot. Writes tables; commits nothing."""

    def __init__(
        self, settings: Settings, partitions: Mapping[str, int], last: Snapshot | None, run: str
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._last = last
        self._run = run
        self._number = last.number + 1 if last else 1
        self._spark: SparkSession = session.start("compact_positions")
        self._view = View(self._spark, settings, last, run)
        self._few = True
        self.done = Done()

    def snapshot(self, ranges: Sequence[Range], ends: Offsets, looked_at: datetime) -> Snapshot:
        """Write all tables up to those ends and return the snapshot that names their versions."""
        self._plan_for(sum(range_.until - range_.first for range_ in ranges))
        found = self._all_caught_up(ranges, ends)
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

    def _all_caught_up(self, ranges: Sequence[Range], ends: Offsets) -> dict[str, CaughtUp]:
        """Read all topics, side by side, and keep what was rejected; return what each brought."""
        origins = [self._settings.topic(name) for name in INPUTS]
        of_retries = [range_ for range_ in ranges if range_.topic not in origins]
        retries = Retries(self._spark, self._settings, of_retries, origins)
        with ThreadPoolExecutor(len(INPUTS)) as pool:  # for a few records, Spark mostly plans
            all_ = pool.map(lambda name: self._catch_up(name, ranges, retries, ends), INPUTS)
            found = {name: one for name, one in zip(INPUTS, all_, strict=True) if one}
        self.done = Done(
            sum(one.rejected for one in found.values()),
            sum(retries.counts.values()),
            sum(one.changes.retries for one in found.values()),
        )
        for one in found.values():
            if one.rejected:
                self._keep_rejected(one.topic, one.new, one.rejected)
        return found

    def _catch_up(
        self, name: str, ranges: Sequence[Range], retries: Retries, ends: Offsets
    ) -> CaughtUp | None:
        """Read one topic's new records, and retries of its records, into history and table."""
        topic = self._settings.topic(name)
        own = [range_ for range_ in ranges if range_.topic == topic]
        retried = retries.of(topic, ends)
        if not own and retried is None:
            return None
        history, table, fields = INPUTS[name]
        step(f"{name} history")
        seen = Observation(f"{name} history")
        frames = [self._events(topic, own, fields)] if own else []
        frames += [self._retried(topic, *retried, fields)] if retried else []
        events = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
        is_original = ~is_retry() if retried else F.lit(True)
        events = events.observe(seen, *_counted(self._partitions[topic], is_original))
        new = self._view.append(history, events, few=self._few)
        step(f"{name} table")
        at_home = not seen.get["strays"] and sum(r.until - r.first for r in own) <= MANY
        latest = self._newest(table, new, at_home=at_home, has_retries=retried is not None)
        return CaughtUp(topic, new, self._changed(table, latest), seen.get["rejected"])

    def _events(self, topic: str, ranges: Sequence[Range], fields: tuple[Field, ...]) -> DataFrame:
        raw = read_ranges(self._spark, self._settings, ranges)
        return self._placed(topic, decoded(raw, fields))

    def _retried(
        self, topic: str, usable: DataFrame, rejected: DataFrame, fields: tuple[Field, ...]
    ) -> DataFrame:
        """Return the retries of records of a topic as rows of its history."""
        events = self._placed(topic, decoded(usable, fields, RETRY))
        rejected = rejected.withColumn("snapshot", F.lit(self._number).cast("bigint"))
        return events.unionByName(rejected, allowMissingColumns=True)

    def _placed(self, topic: str, events: DataFrame) -> DataFrame:
        seq = kafka_placement.seq_of(
            self._spark, F.col("key"), F.col("partition"), F.col("offset"), self._partitions[topic]
        )
        return events.withColumns({"seq": seq, "snapshot": F.lit(self._number).cast("bigint")})

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
        self._view.append(t.REJECTED_RECORDS, whole)

    def _newest(
        self, table: t.Table, new: DataFrame, *, at_home: bool, has_retries: bool
    ) -> DataFrame:
        """Return the latest of the new records of each key, as rows of that table."""
        columns = columns_of(table)
        originals = new.where(~is_retry()) if has_retries else new
        latest = (
            fold.latest_at_home(originals)
            if at_home and not self._few
            else fold.latest_per_key(originals, few=self._few)
        )
        latest = fold.as_rows(latest, columns)
        if not has_retries:
            return latest
        retries = new.where(is_retry() & (F.col("kind") != fold.REJECTED))
        return fold.latest_with_retries(latest, fold.as_rows(retries, columns))

    def _changed(self, table: t.Table, latest: DataFrame) -> Changes:
        known = self._view.read_with_files(table)
        if self._view.is_empty(table):  # read what was written rather than keep what to write
            first = self._view.append(table, latest, few=self._few)
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
        table = Holders(
            self._spark, self._settings, self._view, self._last, self._number, self._shards
        )
        holders, held = table.update(positions.rows if positions else None, few=self._few)
        return Counts(
            before.positions + (positions.opened if positions else 0),
            before.holders + holders,
            before.held + held,
            before.rejected + self.done.rejected,
        )


def _counted(partitions: int, is_original: Column) -> tuple[Column, Column]:
    """Count what is rejected, and the originals outside of the newest home of their key."""
    rank = F.shiftright("seq", OFFSET_BITS)
    return (
        F.count_if(F.col("kind") == fold.REJECTED).alias("rejected"),
        F.count_if((rank != HOME + partitions) & is_original).alias("strays"),
    )
