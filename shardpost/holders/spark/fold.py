"""The table of holders, updated by what changed (model/record_order.py), as a KTable would be.

Adder and subtractor per client: the positions that it came to hold, and those that it ceased to;
none that it still holds. Of a few records that is done without Spark: in memory are the changes,
and the lists of the clients that change; of too many, Spark does it.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from shardpost.delta import query
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.snapshot import LONGEST_EXCHANGE, Counts, UnknownExchanges
from shardpost.delta.table import LayeredVersion, text_literal
from shardpost.holders.model import view_tables as t
from shardpost.holders.model.who_holds import RuleAt, changed_holders, position_sort_key
from shardpost.holders.plausibility import count_unknown, known_at, known_exchanges
from shardpost.holders.spark.compaction_run import (
    FewRows,
    HoldersRun,
    TableWriter,
    as_frame,
    known_rows,
    totals,
)
from shardpost.holders.spark.held_positions import order_of
from shardpost.kafka.records import partition_of
from shardpost.logs import step
from shardpost.spark import run_size
from shardpost.spark.kafka_source import partition_column


def per_client(held: DataFrame) -> DataFrame:
    """Return (client, added, removed), ids of positions, by what `changed_holders` finds."""
    sides = F.array(
        F.struct(F.col("held_by").alias("client"), F.lit(-1).alias("delta")),
        F.struct(F.col("holds").alias("client"), F.lit(1).alias("delta")),
    )
    deltas = held.select("position", F.explode(sides).alias("side")).where(
        "side.client IS NOT NULL"
    )
    return deltas.groupBy("side.client").agg(
        F.collect_list(F.when(F.col("side.delta") > 0, F.col("position"))).alias("added"),
        F.collect_list(F.when(F.col("side.delta") < 0, F.col("position"))).alias("removed"),
    )


def sorted_ids(ids: Column) -> Column:
    """Return the ids in the order of holders/model/who_holds.py."""
    keyed = F.transform(ids, lambda id_: F.struct(*order_of(id_), id_.alias("id")))
    # Not array_sort, which calls a comparator for every two elements.
    return F.sort_array(keyed).getField("id")


@dataclass
class ListChange:
    """The ids of positions that a client came to hold, and ceased to."""

    added: list[str] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)

    def applied_to(self, held: Sequence[str]) -> list[str]:
        """Return the list after the change; both are in the order of `position_sort_key`."""
        left = [id_ for id_ in held if id_ not in self.removed]
        ids, start = list[str](), 0
        for id_ in sorted(set(self.added).difference(left), key=position_sort_key):
            at = bisect_right(left, position_sort_key(id_), lo=start, key=position_sort_key)
            ids += [*left[start:at], id_]
            start = at
        return ids + left[start:]


def list_changes(
    positions: Iterable[tuple[str, str | None, str | None]],
) -> dict[str, ListChange]:
    """Return what changes by client, of each position (id, who held it, who holds it), once."""
    changes: dict[str, ListChange] = defaultdict(ListChange)
    for id_, held_by, holds in positions:
        if held_by is not None:
            changes[held_by].removed.add(id_)
        if holds is not None:
            changes[holds].added.append(id_)
    return dict(changes)


# How many more clients hold than before, and how many more positions they hold.
HoldersChange = tuple[int, int]


class _Exchanges(NamedTuple):
    """What positions had to meet by their exchange before this run, and have to now."""

    before: RuleAt
    now: RuleAt

    @property
    def changed(self) -> str | None:
        return self.now.changed_since(self.before)


def update_holders(run: HoldersRun, changed: DataFrame | FewRows | None, opened: int = 0) -> Counts:
    """Write the holders whose list changes; return the counts, with `rejected` as it was.

    `changed` are the `changes` of positions, if any, by which so many more are open. The histories
    of positions and exchanges are up to date by then.
    """
    last, before = run.last, run.last.counts if run.last else Counts()
    where, known = run.tables.where, known_exchanges(run.tables.where, run.tables.seen(t.EXCHANGES))
    now = RuleAt(run.rule, known)
    # Without a snapshot before, all that is open is in `changed`.
    exchanges = _Exchanges(RuleAt(last.rule, known_at(where, last)) if last else now, now)
    # The country of one exchange may concern any number of clients.
    few, done = run.few and not exchanges.changed, None
    if few and isinstance(changed, FewRows):
        done = _write_few(run, changed, exchanges)
    if done is None:
        frame = None if changed is None else as_frame(run, changed)
        done = _write_held(run, _held(run, frame, exchanges), few=few)
    holders, held = done
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
    known = exchanges.now.countries.keys()
    few, same = not isinstance(changed, DataFrame), known == exchanges.before.countries.keys()
    if run.last and few and same and before.has_all:
        counts = Counter(before.unknown_exchanges)
        if changed is not None:
            rows: pa.Table = changed.rows
            for prefix, sign in (("", 1), ("old_", -1)):
                is_open = pc.fill_null(rows[f"{prefix}is_open"], False)
                for code in rows[f"{prefix}exchange"].filter(is_open).to_pylist():
                    counts[code[:LONGEST_EXCHANGE]] += 0 if code in known else sign
        return UnknownExchanges.of(+counts)  # only those above 0
    return count_unknown(run.tables.where, run.tables.seen(t.POSITIONS, t.EXCHANGES))


def _write_few(run: HoldersRun, changed: FewRows, exchanges: _Exchanges) -> HoldersChange | None:
    """Write the holders whose list changes, without Spark; None if that is not for few."""
    if run.tables.is_empty(t.SHARE_HOLDERS):
        return None
    rows_ = changed.query(changed_holders(exchanges.before, exchanges.now))
    changes = list_changes(zip(*(column.to_pylist() for column in rows_.columns), strict=True))
    known = _known_lists(run, [*changes])
    if known is None:
        return None
    lists = {
        client: change.applied_to(known[client].to_pylist() if client in known else [])
        for client, change in changes.items()
    }
    if lists:
        step("share_holders")
        columns = {
            "client": [*lists],
            "positions": [*lists.values()],
            "snapshot": [run.number] * len(lists),
            "shard": [partition_of(client, run.shards) for client in lists],
        }
        schema = arrow_schema(t.SHARE_HOLDERS_CHANGES)
        run.tables.append(t.SHARE_HOLDERS_CHANGES, pa.table(columns, schema))
    counts = {client: len(ids) for client, ids in known.items()}
    holders = sum(bool(ids) - bool(counts.get(client)) for client, ids in lists.items())
    return holders, sum(len(ids) - counts.get(client, 0) for client, ids in lists.items())


def _known_lists(run: HoldersRun, clients: list[str]) -> dict[str, pa.Array] | None:
    """Return what the last snapshot has of clients; None if they or it are too many."""
    assert run.last is not None  # noqa: S101 - else nothing is known, and Spark writes it
    if not clients:
        return {}
    if len(clients) > run_size.THRESHOLDS.clients_at_once:
        return None
    values = ", ".join(f"({text_literal(client)})" for client in clients)
    keys = f"SELECT v.column1 AS client FROM (VALUES {values}) v"  # noqa: S608 - literals
    at: LayeredVersion = replace(run.last.layered(t.SHARE_HOLDERS), keys=keys)
    sql, size = "SELECT client, positions FROM share_holders", 0
    known: dict[str, pa.Array] = {}
    for batch in query.stream(run.tables.where, sql, {run.tables.located(t.SHARE_HOLDERS): at}):
        # As it comes, a batch holds on to, and counts, all that was read to find it.
        lists = batch["positions"].cast(arrow_schema(t.SHARE_HOLDERS).field("positions").type)
        size += lists.nbytes
        if size > run_size.THRESHOLDS.lists_at_once:
            return None
        known |= zip(batch["client"].to_pylist(), (one.values for one in lists), strict=True)
    return known


def _held(run: HoldersRun, changed: DataFrame | None, exchanges: _Exchanges) -> DataFrame | None:
    """Return who held, and who holds, the positions that changed, or what they have to meet."""
    names = ("client", "ticker", "amount", "exchange", "is_open")
    columns = ("key", *names, *(f"old_{name}" for name in names))
    rows_ = [] if changed is None else [changed.select(*columns)]
    if exchanges.changed:
        run.plan_for_rows_of(t.POSITIONS)
        positions = run.tables.read(t.POSITIONS).where(exchanges.changed)
        if changed is not None:
            positions = positions.join(changed, "key", "left_anti")
        same = (F.col(name).alias(f"old_{name}") for name in names)
        rows_.append(positions.select("key", *names, *same))
    if not rows_:
        return None
    sql = changed_holders(exchanges.before, exchanges.now)
    return run.spark.sql(sql, changed=reduce(DataFrame.union, rows_))


def _write_held(run: HoldersRun, changed: DataFrame | None, *, few: bool) -> HoldersChange:
    if changed is None:
        return 0, 0
    step("share_holders")
    touched, table = per_client(changed), t.SHARE_HOLDERS
    if run.tables.is_empty(table):  # read back what was written rather than persist it
        first = touched.withColumn("positions", sorted_ids(F.col("added")))
        rows_ = as_holder_rows(run.tables, first, run.shards)
        written = run.tables.write_first(table, rows_, coalesce=few)
        [held] = totals(run.tables.rows_of(written), "size(positions)")
        return written.non_null("client"), held
    touched = touched.persist(StorageLevel.MEMORY_AND_DISK)
    known = known_rows(run, table, touched, "client")
    known = known.select("client", F.col("positions").alias("known"))
    held_before = F.coalesce("known", F.array().cast("array<string>"))
    now = sorted_ids(F.array_union(F.array_except(held_before, "removed"), "added"))
    updated = touched.join(known, "client", "left").select(
        "client", now.alias("positions"), F.size(held_before).alias("old_count")
    )
    updated = updated.persist(StorageLevel.MEMORY_AND_DISK)
    holders, held = totals(
        updated,
        "cast(size(positions) > 0 as int) - cast(old_count > 0 as int)",
        "size(positions) - old_count",
    )
    rows_ = as_holder_rows(run.tables, updated, run.shards)
    run.tables.append(t.SHARE_HOLDERS_CHANGES, rows_, coalesce=few)
    return holders, held


def as_holder_rows(tables: TableWriter, holders: DataFrame, shards: int) -> DataFrame:
    """Return holders as rows of their table."""
    shard = partition_column(tables.spark, F.col("client"), shards)
    snapshot = F.lit(tables.number).cast("bigint")
    return holders.select("client", "positions", snapshot.alias("snapshot"), shard.alias("shard"))
