"""The table of holders, updated by what changed of positions and of exchanges' countries."""

from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.delta.layers import Version
from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.table import Table
from shardpost.holders.model import tables as t
from shardpost.holders.spark import fold
from shardpost.holders.spark.holders_run import HoldersRun
from shardpost.holders.spark.known_rows import known_holders
from shardpost.holders.spark.totals import totals
from shardpost.settings import Settings
from shardpost.spark import kafka_partitioning
from shardpost.steps import step


class HoldersChange(NamedTuple):
    """How many more clients hold than before, and how many more positions they hold."""

    holders: int = 0
    held: int = 0


@dataclass(frozen=True)
class _CountingExchanges:
    """The exchanges whose stock counted before this run, and counts now."""

    before: set[str]
    now: set[str]

    @property
    def changed(self) -> set[str]:
        return self.before ^ self.now


def update_holders(run: HoldersRun, changed: DataFrame | None) -> HoldersChange:
    """Write the holders whose list changes; `changed` are the `fold.changes` of positions, if any.

    The histories of positions and exchanges are up to date by then.
    """
    exchanges = _counting_exchanges(run)
    deltas = _deltas(run, changed, exchanges)
    if not deltas:
        return HoldersChange()
    step("share_holders")
    # The country of one exchange may concern any number of clients.
    broadcast_keys = run.broadcast_keys and not exchanges.changed
    return _write(run, reduce(DataFrame.union, deltas), broadcast_keys=broadcast_keys)


def _counting_exchanges(run: HoldersRun) -> _CountingExchanges:
    last, settings = run.last, run.settings
    now = {run.tables.located(t.EXCHANGES): run.tables.at(t.EXCHANGES)}
    return _CountingExchanges(
        _in_country(settings, at_snapshot(last, t.EXCHANGES), last.country) if last else set(),
        _in_country(settings, now, run.country),
    )


def _in_country(settings: Settings, at: dict[Table, Version], country: str) -> set[str]:
    """Return the exchanges in that country, by their table at a version."""
    sql = "SELECT key, country FROM exchanges WHERE is_open"
    found = rows(settings, sql, at)
    return {row["key"] for row in found if row["country"] == country}


def _deltas(
    run: HoldersRun, changed: DataFrame | None, exchanges: _CountingExchanges
) -> list[DataFrame]:
    before, now = exchanges.before, exchanges.now
    deltas = [] if changed is None else [fold.deltas_of_changes(changed, before, now)]
    if exchanges.changed:
        on_changed = F.col("exchange").isin(*exchanges.changed)
        positions = run.tables.read(t.POSITIONS).where(on_changed)
        if changed is not None:
            positions = positions.join(changed, "key", "left_anti")
        deltas.append(fold.deltas_of_exchanges(positions, before, now))
    return deltas


def _write(run: HoldersRun, deltas: DataFrame, *, broadcast_keys: bool) -> HoldersChange:
    touched, table = fold.per_client(deltas), t.SHARE_HOLDERS
    if run.tables.is_empty(table):  # read back what was written rather than persist it
        first = touched.withColumn("positions", fold.sorted_ids(F.col("added")))
        written = run.tables.write_first(table, _as_rows(run, first), coalesce=broadcast_keys)
        [held] = totals(run.tables.rows_of(written), "size(positions)")
        return HoldersChange(written.non_null("client"), held)
    touched = touched.persist(StorageLevel.MEMORY_AND_DISK)
    known = known_holders(run, touched, few=broadcast_keys)
    updated = fold.updated_holders(touched, known, broadcast_keys=broadcast_keys)
    updated = updated.persist(StorageLevel.MEMORY_AND_DISK)
    holders, held = totals(
        updated,
        "cast(size(positions) > 0 as int) - cast(old_count > 0 as int)",
        "size(positions) - old_count",
    )
    run.tables.append(table, _as_rows(run, updated), coalesce=broadcast_keys)
    return HoldersChange(holders, held)


def _as_rows(run: HoldersRun, holders: DataFrame) -> DataFrame:
    """Return holders as rows of their table."""
    shard = kafka_partitioning.partition_of(run.spark, F.col("client"), run.shards)
    snapshot = F.lit(run.number).cast("bigint")
    return holders.select("client", "positions", snapshot.alias("snapshot"), shard.alias("shard"))
