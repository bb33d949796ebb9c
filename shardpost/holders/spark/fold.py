"""The KTable's work as transforms: latest per key, adder and subtractor per client.

No broker needed.

Frames, in the words of delta/tables.py:
- changes: one row per key whose latest record is new: the table's columns, and `old_…` for what it
  was;
- marks: (client, position, delta) with delta +1 where a client came to hold a position, -1 where it
  ceased; none where it goes on holding.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from shardpost.holders.model.record_order import OFFSET_BITS
from shardpost.holders.spark.position_order import order_of

TOMBSTONE = "tombstone"
REJECTED = "rejected"


def latest_per_key(events: DataFrame, *, few: bool) -> DataFrame:
    """Return the decodable event with the highest seq of each key."""
    decodable = events.where(F.col("kind") != REJECTED)
    latest = decodable.groupBy("key").agg(F.max("seq").alias("seq"))
    return decodable.join(F.broadcast(latest) if few else latest, ["key", "seq"], "left_semi")


def latest_at_home(events: DataFrame) -> DataFrame:
    """Return `latest_per_key` of events that are all in the one partition of their key.

    Then a record's place tells its key, and a place is one number: a set of these is small enough
    to be sent to all tasks, so that only the latest records are ever shuffled.
    """
    decodable = events.where(F.col("kind") != REJECTED)
    newest = decodable.groupBy("key", "partition").agg(F.max("offset").alias("offset"))
    places = F.broadcast(newest.select(_place().alias("place")))
    found = decodable.withColumn("place", _place()).join(places, "place", "left_semi")
    return found.drop("place")


def _place() -> Column:
    return F.shiftleft(F.col("partition").cast("bigint"), OFFSET_BITS).bitwiseOR(F.col("offset"))


def latest_with_retries(rows: DataFrame) -> DataFrame:
    """Return the latest row of each key in the order of holders/model/record_order.py.

    All have the columns of a latest-per-key table, and are of one run.
    """
    order = F.struct("seq", F.col("retry_offset").isNull(), "retry_offset")
    newest = F.max_by(F.struct(*rows.columns), order).alias("newest")
    return rows.groupBy("key").agg(newest).select("newest.*")


def as_rows(events: DataFrame, columns: list[str]) -> DataFrame:
    """Return events as rows of a latest-per-key table with those columns."""
    is_open = (F.col("kind") != TOMBSTONE).alias("is_open")
    return events.select(*(is_open if name == "is_open" else name for name in columns))


def changes(latest: DataFrame, table: DataFrame, *, few: bool) -> DataFrame:
    """Return the rows of `latest` newer than the table's, beside what the table has (`old_…`)."""
    touched = _only(table, latest.select("key"), few)
    old = touched.select("key", *(F.col(name).alias(f"old_{name}") for name in _rest(table)))
    newer = F.col("old_seq").isNull() | (F.col("seq") > F.col("old_seq"))
    # Of the place of a known retry, nothing but a later retry can come.
    newer |= (F.col("seq") == F.col("old_seq")) & F.col("old_retry_offset").isNotNull()
    return latest.join(old, "key", "left").where(newer)


def marks_of_changes(changed: DataFrame, was: set[str], now: set[str]) -> DataFrame:
    """Return the marks of positions that changed.

    The sets are the exchanges that counted, and do.
    """
    return _marks(changed, F.col("old_exchange").isin(*was), F.col("exchange").isin(*now))


def marks_of_exchanges(untouched: DataFrame, was: set[str], now: set[str]) -> DataFrame:
    """Return the marks of positions that did not change, but whose exchange's country did."""
    same = untouched.select(
        "*", *(F.col(name).alias(f"old_{name}") for name in ("client", "exchange", "is_open"))
    )
    return _marks(same, F.col("exchange").isin(*was), F.col("exchange").isin(*now))


def per_client(marks: DataFrame) -> DataFrame:
    """Return (client, added, removed): the ids that a client came to hold, and ceased to."""
    return marks.groupBy("client").agg(
        F.collect_list(F.when(F.col("delta") > 0, F.col("position"))).alias("added"),
        F.collect_list(F.when(F.col("delta") < 0, F.col("position"))).alias("removed"),
    )


def new_holders(touched: DataFrame, holders: DataFrame, *, few: bool) -> DataFrame:
    """Return (client, positions, was, old_file) of the touched clients.

    `was` is how many each held before, `old_file` where that stands.
    """
    known = _only(holders, touched.select("client"), few)
    old = known.select("client", F.col("positions").alias("held"), F.col("file").alias("old_file"))
    held = F.coalesce("held", F.array().cast("array<string>"))
    return touched.join(old, "client", "left").select(
        "client",
        sorted_ids(F.array_union(F.array_except(held, "removed"), "added")).alias("positions"),
        F.size(held).alias("was"),
        "old_file",
    )


def sorted_ids(ids: Column) -> Column:
    """Return the ids in the order of holders/model/position_order.py."""
    keyed = F.transform(ids, lambda id_: F.struct(*order_of(id_), id_.alias("id")))
    # Not array_sort, which calls a comparator for every two of them.
    return F.sort_array(keyed).getField("id")


def _marks(changed: DataFrame, counted: Column, counts: Column) -> DataFrame:
    before = F.coalesce(F.col("old_is_open") & counted, F.lit(False))
    after = F.coalesce(F.col("is_open") & counts, F.lit(False))
    stays = before & after & (F.col("old_client") == F.col("client"))
    sides = F.array(
        F.when(
            before & ~stays,
            F.struct(F.col("old_client").alias("client"), F.lit(-1).alias("delta")),
        ),
        F.when(
            after & ~stays,
            F.struct(F.col("client").alias("client"), F.lit(1).alias("delta")),
        ),
    )
    each = changed.select(F.col("key").alias("position"), F.explode(sides).alias("side"))
    return each.where("side IS NOT NULL").select("side.client", "position", "side.delta")


def _rest(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if name != "key"]


def _only(table: DataFrame, keys: DataFrame, few: bool) -> DataFrame:
    """Return the table's rows with those keys.

    Where they are few, the table is not shuffled for it.
    """
    return table.join(F.broadcast(keys) if few else keys, keys.columns, "left_semi")
