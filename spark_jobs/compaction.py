"""One compaction.

From offset ranges to new versions of all tables, and the snapshot that names them.
"""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost import __version__
from shardpost.adapters.delta import rows
from shardpost.domain import tables as t
from shardpost.domain.offsets import Range
from shardpost.domain.snapshot import Counts, Offsets, Snapshot
from shardpost.settings import Settings
from spark_jobs import fold, kafka_placement, session
from spark_jobs.decode import CLIENT_FIELDS, EXCHANGE_FIELDS, POSITION_FIELDS, Field, decoded
from spark_jobs.kafka_source import read_ranges
from spark_jobs.rejected import report_rejected
from spark_jobs.steps import step
from spark_jobs.view import View

log = logging.getLogger(__name__)

# topic of the contract -> its history, its latest-per-key table, how it is decoded
INPUTS: dict[str, tuple[t.Table, t.Table, tuple[Field, ...]]] = {
    "positions": (t.POSITION_EVENTS, t.POSITIONS, POSITION_FIELDS),
    "clients": (t.CLIENT_EVENTS, t.CLIENTS, CLIENT_FIELDS),
    "exchanges": (t.EXCHANGE_EVENTS, t.EXCHANGES, EXCHANGE_FIELDS),
}


# Up to so many records, keys are broadcast rather than tables shuffled.
FEW = 200_000
_OPENED = "cast(is_open as int) - coalesce(cast(old_is_open as int), 0)"


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
        self._view = View(self._spark, settings, last)
        self._few = True
        self.rejected = 0

    def snapshot(self, ranges: Sequence[Range], ends: Offsets, looked_at: datetime) -> Snapshot:
        """Write all tables up to those ends and return the snapshot that names their versions."""
        self._plan_for(sum(range_.until - range_.first for range_ in ranges))
        before = self._last.counts if self._last else Counts()
        with ThreadPoolExecutor(len(INPUTS)) as pool:  # each is mostly Delta's bookkeeping
            found = pool.map(lambda name: self._catch_up(name, ranges), INPUTS)
            changed = dict(zip(INPUTS, found, strict=True))
        self._reject(ranges)
        counts = self._holders(changed["positions"], before)
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
            shards=self._partitions[self._settings.topic("share-holders")],
        )

    def _plan_for(self, records: int) -> None:
        """Choose between the plans for a small increment and for reprocessing."""
        self._few = records <= FEW
        cores = self._spark.sparkContext.defaultParallelism
        self._spark.conf.set("spark.sql.shuffle.partitions", cores if self._few else 4 * cores)

    def _catch_up(self, name: str, ranges: Sequence[Range]) -> DataFrame | None:
        """Read one topic's new records into its history and its table.

        Return the changes, or None.
        """
        topic = self._settings.topic(name)
        own = [range_ for range_ in ranges if range_.topic == topic]
        if not own:
            return None
        history, table, fields = INPUTS[name]
        step(f"{name} history")
        self._view.append(history, self._events(topic, own, fields))
        step(f"{name} table")
        return self._latest(table, self._new(history))

    def _new(self, history: t.Table) -> DataFrame:
        return self._view.read(history).where(F.col("snapshot") == self._number)

    def _events(self, topic: str, ranges: Sequence[Range], fields: tuple[Field, ...]) -> DataFrame:
        raw = read_ranges(self._spark, self._settings, ranges)
        seq = kafka_placement.seq_of(
            self._spark, F.col("key"), F.col("partition"), F.col("offset"), self._partitions[topic]
        )
        return decoded(raw, fields).withColumns(
            {"seq": seq, "snapshot": F.lit(self._number).cast("bigint")}
        )

    def _reject(self, ranges: Sequence[Range]) -> None:
        """Keep whole, count and name what could not be decoded."""
        read = {range_.topic for range_ in ranges}
        for name, (history, _, _) in INPUTS.items():
            if (topic := self._settings.topic(name)) in read:
                self._keep_rejected(topic, self._new(history))

    def _keep_rejected(self, topic: str, new: DataFrame) -> None:
        rejected = new.where(F.col("kind") == fold.REJECTED)
        count = rejected.count()
        if not count:
            return
        self.rejected += count
        report_rejected(topic, count, rejected)
        columns = ("partition", "offset", "timestamp", "value", "headers", "reason", "snapshot")
        whole = rejected.select(
            F.lit(topic).alias("topic"), F.col("raw_key").alias("key"), *columns
        )
        self._view.append(t.REJECTED_RECORDS, whole)

    def _latest(self, table: t.Table, new: DataFrame) -> DataFrame:
        known = self._view.read(table)
        latest = fold.as_rows(fold.latest_per_key(new), known.columns)
        first = self._view.versions[table.name] == 0
        changes = (
            fold.first_changes(latest) if first else fold.changes(latest, known, few=self._few)
        )
        changes = changes.persist(StorageLevel.MEMORY_AND_DISK)
        self._write(table, changes.select(known.columns), ("key",))
        return changes

    def _write(self, table: t.Table, rows_: DataFrame, keys: tuple[str, ...]) -> None:
        """Append to a table that is still empty; merge into one that is not."""
        if self._view.versions[table.name] == 0:
            self._view.append(table, rows_)
        else:
            self._view.upsert(table, rows_, keys, rows_.columns)

    def _holders(self, positions: DataFrame | None, before: Counts) -> Counts:
        marks = self._marks(positions)
        opened = holders = held = 0
        if positions is not None:
            [opened] = _sums(positions, _OPENED)
        if marks is not None:
            step("share_holders")
            holders, held = self._write_holders(marks)
        return Counts(
            before.positions + opened,
            before.holders + holders,
            before.held + held,
            before.rejected + self.rejected,
        )

    def _marks(self, positions: DataFrame | None) -> DataFrame | None:
        was, now = self._counting()
        marks = []
        if positions is not None:
            marks.append(fold.marks_of_changes(positions, was, now))
        turned = was ^ now
        if turned:
            self._few = False  # one exchange's country touches any number of clients
            on_turned = self._view.read(t.POSITIONS).where(F.col("exchange").isin(*turned))
            if positions is not None:
                on_turned = on_turned.join(positions, "key", "left_anti")
            marks.append(fold.marks_of_exchanges(on_turned, was, now))
        if not marks:
            return None
        return marks[0] if len(marks) == 1 else marks[0].union(marks[1])

    def _counting(self) -> tuple[set[str], set[str]]:
        """Return the exchanges that counted at the last snapshot, and those that count now."""
        now = counting_exchanges(self._settings, self._view.versions, self._settings.country)
        if self._last is None:
            return set(), now
        return counting_exchanges(self._settings, self._last.tables, self._last.country), now

    def _write_holders(self, marks: DataFrame) -> tuple[int, int]:
        """Write the touched holders.

        Return how many more clients hold, and how many more positions.
        """
        known = self._view.read(t.SHARE_HOLDERS)
        shards = self._partitions[self._settings.topic("share-holders")]
        holders = (
            fold.new_holders(fold.per_client(marks), known, few=self._few)
            .withColumn("snapshot", F.lit(self._number).cast("bigint"))
            .withColumn("shard", kafka_placement.partition_of(self._spark, F.col("client"), shards))
            .persist(StorageLevel.MEMORY_AND_DISK)
        )
        self._write(t.SHARE_HOLDERS, holders.select(known.columns), ("shard", "client"))
        more, held = _sums(
            holders,
            "cast(size(positions) > 0 as int) - cast(was > 0 as int)",
            "size(positions) - was",
        )
        return more, held


def counting_exchanges(settings: Settings, versions: Mapping[str, int], country: str) -> set[str]:
    """Return the exchanges whose country is that one, at those versions."""
    sql = "SELECT key, country FROM exchanges WHERE is_open"
    found = rows(settings, sql, {t.EXCHANGES: versions[t.EXCHANGES.name]})
    return {row["key"] for row in found if row["country"] == country}


def _sums(frame: DataFrame, *expressions: str) -> list[int]:
    totals = frame.select([F.coalesce(F.sum(F.expr(e)), F.lit(0)) for e in expressions]).first()
    return [int(total) for total in totals or ()]
