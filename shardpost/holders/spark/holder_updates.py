"""The holders, updated by what changed; and layers that have become large, folded into files.

Folding the layers of the tables into their files, where they have become large.

The table of holders, updated by what changed of positions and of exchanges' countries.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.delta.layers import LayeredVersion, Version
from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.table import Table
from shardpost.holders.model import view_tables as t
from shardpost.holders.model.view_tables import FoldingRule
from shardpost.holders.spark import fold
from shardpost.holders.spark.compaction_run import HoldersRun, totals
from shardpost.holders.spark.latest import known_holders
from shardpost.holders.spark.table_writer import LAYERED
from shardpost.settings import Settings
from shardpost.spark import kafka_partitioning
from shardpost.steps import step

log = logging.getLogger(__name__)


def fold_layers(run: HoldersRun, own: Collection[str] | None = None) -> None:
    """Rewrite the tables whose layer is due to be folded in, as this run sees them.

    Of all tables, or of those with a name in `own`.
    """
    rule = _rule(run.settings)
    for table in LAYERED:
        if own is not None and table.name not in own:
            continue
        version = run.tables.at(table)
        if not isinstance(version, LayeredVersion):
            continue
        records, stored = _sizes(run.settings, run.tables.located(table), version)
        runs = run.number - version.folded
        if rule.is_due(records=records, rows=stored, runs=runs):
            step(f"{table.name} fold")
            said = (table.name, records, runs, stored)
            log.info("%s: folding %d records of %d runs into %d rows", *said)
            run.tables.fold(table)


def _sizes(settings: Settings, table: Table, version: LayeredVersion) -> tuple[int, int]:
    """Return how many records the layer has, and how many rows the files."""
    source = table.layer_source
    records = _count(settings, source, version.source, f"snapshot > {version.folded}")
    if source == table:
        return records, _count(settings, table, version.version, f"snapshot <= {version.folded}")
    return records, _count(settings, table, version.version, "true")


def _count(settings: Settings, table: Table, version: int, condition: str) -> int:
    sql = f"SELECT COUNT(*) AS n FROM {table.name} WHERE {condition}"  # noqa: S608 - ours
    return int(rows(settings, sql, {table: version})[0]["n"])


def _rule(settings: Settings) -> FoldingRule:
    return FoldingRule(settings.fold_share, settings.fold_records, settings.fold_runs)


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
