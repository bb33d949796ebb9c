"""The table of holders, updated by what changed (model/record_order.py), as a KTable would be.

Adder and subtractor per client: deltas are (client, position, delta), with delta +1 where a client
came to hold a position, and -1 where it ceased to; no row where it still holds it. Of a few records
the same is in increment.py, without Spark.
"""

import logging
from collections import Counter
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.delta.snapshot import Counts, UnknownExchanges
from shardpost.holders.countries import count_unknown, exchanges_in, known_at, known_exchanges
from shardpost.holders.model import view_tables as t
from shardpost.holders.model.as_of import changed_holders
from shardpost.holders.spark import increment
from shardpost.holders.spark.compaction_run import FewRows, as_frame, known_holders, totals
from shardpost.holders.spark.held_positions import order_of
from shardpost.holders.spark.table_writer import HoldersRun, TableWriter
from shardpost.logs import step
from shardpost.spark.kafka_source import partition_column


def deltas_of_positions(changed: DataFrame, before: set[str], now: set[str]) -> DataFrame:
    """Return the deltas of positions that changed, or whose exchange's country did.

    `before` and `now` are the exchanges that counted, and that count.
    """
    held = changed.sparkSession.sql(changed_holders(before, now), changed=changed)
    sides = F.array(
        F.struct(F.col("held_by").alias("client"), F.lit(-1).alias("delta")),
        F.struct(F.col("holds").alias("client"), F.lit(1).alias("delta")),
    )
    each = held.select("position", F.explode(sides).alias("side"))
    return each.where("side.client IS NOT NULL").select("side.client", "position", "side.delta")


def per_client(deltas: DataFrame) -> DataFrame:
    """Return (client, added, removed): the ids that a client came to hold, and ceased to."""
    return deltas.groupBy("client").agg(
        F.collect_list(F.when(F.col("delta") > 0, F.col("position"))).alias("added"),
        F.collect_list(F.when(F.col("delta") < 0, F.col("position"))).alias("removed"),
    )


def updated_holders(touched: DataFrame, known: DataFrame) -> DataFrame:
    """Return (client, positions, old_count) of the touched clients.

    `touched` is as `per_client` returns it; `known` are (client, positions) that the table has of
    them. `old_count` is how many positions each held before.
    """
    old = known.select("client", F.col("positions").alias("held"))
    held = F.coalesce("held", F.array().cast("array<string>"))
    return touched.join(old, "client", "left").select(
        "client",
        sorted_ids(F.array_union(F.array_except(held, "removed"), "added")).alias("positions"),
        F.size(held).alias("old_count"),
    )


def sorted_ids(ids: Column) -> Column:
    """Return the ids in the order of holders/model/as_of.py."""
    keyed = F.transform(ids, lambda id_: F.struct(*order_of(id_), id_.alias("id")))
    # Not array_sort, which calls a comparator for every two elements.
    return F.sort_array(keyed).getField("id")


log = logging.getLogger(__name__)


# How many more clients hold than before, and how many more positions they hold.
HoldersChange = tuple[int, int]


@dataclass(frozen=True)
class _Exchanges:
    """The exchanges whose stock counted before this run, and counts now; those with a country."""

    before: set[str]
    now: set[str]
    known_before: set[str]
    known: set[str]

    @property
    def changed(self) -> set[str]:
        return self.before ^ self.now


def update_holders(run: HoldersRun, changed: DataFrame | FewRows | None, opened: int = 0) -> Counts:
    """Write the holders whose list changes; return the counts, with `rejected` as it was.

    `changed` are the `changes` of positions, if any, by which so many more are open. The histories
    of positions and exchanges are up to date by then.
    """
    exchanges, before = _exchanges(run), run.last.counts if run.last else Counts()
    holders, held = _update_lists(run, changed, exchanges)
    return replace(
        before,
        positions=before.positions + opened,
        holders=before.holders + holders,
        held=before.held + held,
        unknown=_unknown(run, changed, exchanges, before.unknown),
    )


def _unknown(
    run: HoldersRun,
    changed: DataFrame | FewRows | None,
    exchanges: _Exchanges,
    before: UnknownExchanges,
) -> UnknownExchanges:
    """Count open positions on exchanges without a country; of few changes, by these alone."""
    few, same = not isinstance(changed, DataFrame), exchanges.known == exchanges.known_before
    if run.last and few and same and before.has_all:
        counts = Counter(before.unknown_exchanges)
        if changed is not None:
            counts += increment.opened_by_exchange(changed.rows, exchanges.known)
        return UnknownExchanges.of(counts)
    tables = (t.POSITIONS, t.EXCHANGES)
    return count_unknown(
        run.installation.tables, {run.tables.located(x): run.tables.at(x) for x in tables}
    )


def _update_lists(
    run: HoldersRun, changed: DataFrame | FewRows | None, exchanges: _Exchanges
) -> HoldersChange:
    # The country of one exchange may concern any number of clients.
    few = run.few and not exchanges.changed
    if few and isinstance(changed, FewRows):
        done = _write_few(run, changed, exchanges)
        if done is not None:
            return done
    frame = None if changed is None else as_frame(run, changed)
    deltas = _deltas_of_run(run, frame, exchanges)
    if not deltas:
        return 0, 0
    step("share_holders")
    return _write_holders(run, reduce(DataFrame.union, deltas), few=few)


def _write_few(run: HoldersRun, changed: FewRows, exchanges: _Exchanges) -> HoldersChange | None:
    """Write the holders whose list changes, without Spark; None if that is not for few."""
    if run.tables.is_empty(t.SHARE_HOLDERS):
        return None
    lists = increment.changed_lists(run, changed, exchanges.before, exchanges.now)
    if lists is None:
        return None
    if lists.rows.num_rows:
        step("share_holders")
        run.tables.append(t.SHARE_HOLDERS, lists.rows)
    return lists.holders, lists.held


def _exchanges(run: HoldersRun) -> _Exchanges:
    last, installation = run.last, run.installation
    before = known_at(installation.tables, last) if last else {}
    now = known_exchanges(
        installation.tables, {run.tables.located(t.EXCHANGES): run.tables.at(t.EXCHANGES)}
    )
    was_counted = exchanges_in(last.country, before) if last else set[str]()
    return _Exchanges(was_counted, exchanges_in(run.country, now), {*before}, {*now})


def _deltas_of_run(
    run: HoldersRun, changed: DataFrame | None, exchanges: _Exchanges
) -> list[DataFrame]:
    before, now = exchanges.before, exchanges.now
    deltas = [] if changed is None else [deltas_of_positions(changed, before, now)]
    if exchanges.changed:
        run.plan_for_rows_of(t.POSITIONS)
        on_changed = F.col("exchange").isin(*exchanges.changed)
        positions = run.tables.read(t.POSITIONS).where(on_changed)
        if changed is not None:
            positions = positions.join(changed, "key", "left_anti")
        same = (F.col(name).alias(f"old_{name}") for name in ("client", "exchange", "is_open"))
        deltas.append(deltas_of_positions(positions.select("*", *same), before, now))
    return deltas


def _write_holders(run: HoldersRun, deltas: DataFrame, *, few: bool) -> HoldersChange:
    touched, table = per_client(deltas), t.SHARE_HOLDERS
    if run.tables.is_empty(table):  # read back what was written rather than persist it
        first = touched.withColumn("positions", sorted_ids(F.col("added")))
        rows_ = as_holder_rows(run.tables, first, run.shards)
        written = run.tables.write_first(table, rows_, coalesce=few)
        [held] = totals(run.tables.rows_of(written), "size(positions)")
        return written.non_null("client"), held
    touched = touched.persist(StorageLevel.MEMORY_AND_DISK)
    updated = updated_holders(touched, known_holders(run, touched))
    updated = updated.persist(StorageLevel.MEMORY_AND_DISK)
    holders, held = totals(
        updated,
        "cast(size(positions) > 0 as int) - cast(old_count > 0 as int)",
        "size(positions) - old_count",
    )
    rows_ = as_holder_rows(run.tables, updated, run.shards)
    run.tables.append(table, rows_, coalesce=few)
    return holders, held


def as_holder_rows(tables: TableWriter, holders: DataFrame, shards: int) -> DataFrame:
    """Return holders as rows of their table."""
    shard = partition_column(tables.spark, F.col("client"), shards)
    snapshot = F.lit(tables.number).cast("bigint")
    return holders.select("client", "positions", snapshot.alias("snapshot"), shard.alias("shard"))
