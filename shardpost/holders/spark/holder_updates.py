"""The holders' side of a compaction: whose positions came to count, and whose ceased to."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.delta.query import rows
from shardpost.delta.snapshot import Snapshot
from shardpost.holders.model import tables as t
from shardpost.holders.spark import fold
from shardpost.holders.spark.table_writer import TableWriter, summed, total
from shardpost.settings import Settings
from shardpost.spark import kafka_partitioning
from shardpost.steps import step


@dataclass(frozen=True)
class HolderUpdates:
    """The table of holders in the run after that snapshot, which has caught up all other tables.

    `number` is of the snapshot to come, `shards` the partitions of `share-holders`.
    """

    spark: SparkSession
    settings: Settings
    view: TableWriter
    last: Snapshot | None
    number: int
    shards: int

    def update(self, changed: DataFrame | None, *, few: bool) -> tuple[int, int]:
        """Write the touched holders, where `changed` are the `fold.changes` of positions, if any.

        Return how many more clients hold, and how many more positions.
        """
        was = self._counting(self.last.tables, self.last.country) if self.last else set()
        now = self._counting(self.view.versions, self.settings.country)
        marks = self._marks(changed, was, now)
        if not marks:
            return 0, 0
        step("share_holders")
        # One exchange's country touches any number of clients.
        return self._write(reduce(DataFrame.union, marks), few=few and was == now)

    def _counting(self, versions: Mapping[str, int], country: str) -> set[str]:
        """Return the exchanges whose country is that one, at those versions."""
        sql = "SELECT key, country FROM exchanges WHERE is_open"
        found = rows(self.settings, sql, {t.EXCHANGES: versions[t.EXCHANGES.name]})
        return {row["key"] for row in found if row["country"] == country}

    def _marks(self, changed: DataFrame | None, was: set[str], now: set[str]) -> list[DataFrame]:
        marks = [] if changed is None else [fold.marks_of_changes(changed, was, now)]
        turned = was ^ now
        if turned:
            on_turned = self.view.read(t.POSITIONS).where(F.col("exchange").isin(*turned))
            if changed is not None:
                on_turned = on_turned.join(changed, "key", "left_anti")
            marks.append(fold.marks_of_exchanges(on_turned, was, now))
        return marks

    def _write(self, marks: DataFrame, *, few: bool) -> tuple[int, int]:
        touched, table = fold.per_client(marks), t.SHARE_HOLDERS
        if self.view.is_empty(table):  # read what was written rather than keep what to write
            first = self._rows(touched.withColumn("positions", fold.sorted_ids(F.col("added"))))
            written = self.view.append(table, first, few=few)
            return written.non_null("client"), total(self.view.rows_of(written), "size(positions)")
        known = self.view.read_with_files(table)
        holders = fold.new_holders(touched, known, few=few).persist(StorageLevel.MEMORY_AND_DISK)
        (more, held), files = summed(
            holders,
            "cast(size(positions) > 0 as int) - cast(was > 0 as int)",
            "size(positions) - was",
        )
        self.view.upsert(table, self._rows(holders), files, few=few)
        return more, held

    def _rows(self, holders: DataFrame) -> DataFrame:
        """Return holders as rows of their table."""
        shard = kafka_partitioning.partition_of(self.spark, F.col("client"), self.shards)
        snapshot = F.lit(self.number).cast("bigint")
        return holders.select(
            "client", "positions", snapshot.alias("snapshot"), shard.alias("shard")
        )
