"""Who holds what at a snapshot, their contacts, and who has unsubscribed since, as frames.

This is all that other features may import from the holders. Position ids are in the order of
model/who_holds.py, as Spark columns. Who holds and can be reached is also known without a JVM.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta.query import (
    OpenedTables,
    at_snapshot,
    has_rows,
    query,
    rows,
    stream,
    version_at,
)
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.delta.table import text_literal, time_literal
from shardpost.holders.model import view_tables as t
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.input_mapping import LANGUAGE, InputMapping, mapping_in
from shardpost.holders.model.who_holds import (
    RELATIONS,
    changed_since,
    counted_positions,
    position_sort_key,
)
from shardpost.holders.spark.decoding import field_of, parsed
from shardpost.holders.spark.translation import OWN, Translation
from shardpost.spark import run_size
from shardpost.spark.delta_files import read
from shardpost.values.holding_rule import Rule


def order_of(position: Column) -> list[Column]:
    """Return the columns to sort by, before the id itself: kind, length, digits."""
    is_number = position.rlike(r"\A[0-9]+\z")
    digits = F.when(is_number, F.ltrim(position, F.lit("0"))).otherwise("")
    return [
        F.when(is_number, 0).otherwise(1).alias("kind"),
        F.length(digits).alias("length"),
        digits.alias("digits"),
    ]


# Fields of each element of `positions`.
POSITION_FIELDS = ("position", "ticker", "amount", "exchange")

_HOLDING = """
SELECT h.client AS client, c.email AS email, c.key IS NOT NULL AS has_contact
FROM (SELECT DISTINCT u.client FROM ({positions}) u WHERE {condition}) h
LEFT JOIN (SELECT key, email FROM clients WHERE is_open) c ON h.client = c.key
"""


def held_positions(
    spark: SparkSession, tables: Tables, snapshot: Snapshot, as_of: datetime
) -> DataFrame:
    """Return (client, positions) of every client that held then.

    `positions` is an array of structs (position, ticker, amount, exchange), all text, in the order
    of their ids. ShardpostError for an instant of which the history was pruned.
    """
    snapshot.require_history(as_of)
    for table in RELATIONS:
        frame = read(spark, tables, snapshot.located(table), version_at(snapshot, table))
        frame.createOrReplaceTempView(table.name)
    # Most often few have changed since; they are counted without a JVM.
    sql = f"SELECT count(*) AS n FROM positions c WHERE {changed_since(as_of)}"  # noqa: S608
    [changed] = rows(tables, sql, at_snapshot(snapshot, t.POSITIONS))
    few = changed["n"] <= run_size.THRESHOLDS.broadcast_keys
    held = spark.sql(counted_positions(snapshot.rule, as_of, few_changed=few))
    ranked = F.struct(*order_of(F.col("position")), *POSITION_FIELDS)
    in_order = F.transform(
        F.sort_array(F.collect_list(ranked)),
        lambda row: F.struct(*(row[name] for name in POSITION_FIELDS)),
    )
    return held.groupBy("client").agg(in_order.alias("positions"))


def contacts(spark: SparkSession, tables: Tables, snapshot: Snapshot) -> DataFrame:
    """Return (client, name, email, subscribed) of every client that has a record."""
    clients = read(spark, tables, snapshot.located(t.CLIENTS), version_at(snapshot, t.CLIENTS))
    return clients.where("is_open").select(
        F.col("key").alias("client"), "name", "email", "subscribed"
    )


# A tag of a language has at most 35 characters (RFC 5646, 4.4.1).
_LONGEST_LANGUAGE = 35


def contact_languages(spark: SparkSession, tables: Tables, snapshot: Snapshot) -> DataFrame:
    """Return (client, language) of the clients whose latest record has a text as `Language`.

    That field has no column: it is read from the record itself, and whatever else it is is nothing.
    """
    text = F.col("value").cast("string")
    language = field_of(parsed(text, f"STRUCT<{LANGUAGE}:STRING>"), LANGUAGE)
    events = read(
        spark, tables, snapshot.located(t.CLIENT_EVENTS), version_at(snapshot, t.CLIENT_EVENTS)
    ).where(F.col("kind") == RecordKind.UPSERT.value)
    mapping = mapping_in(snapshot.inputs, "clients")
    if mapping and not mapping.has_schemas:  # a registry is not asked here: no language is known
        raw = events.withColumn("key", F.coalesce("raw_key", F.col("key").cast("binary")))
        found = Translation(raw, "clients", mapping).rows(("seq", "retry_offset", *OWN.values()))
        events = found.withColumn("key", F.col("raw_key").cast("string"))
        language = F.try_variant_get(f"found_{LANGUAGE}", "$", "string")
    else:
        events = events.where(F.contains(text, F.lit(LANGUAGE)))
    events = events.select("key", "seq", "retry_offset", language.alias("language"))
    events = events.where(F.length("language") <= _LONGEST_LANGUAGE)
    clients = read(spark, tables, snapshot.located(t.CLIENTS), version_at(snapshot, t.CLIENTS))
    latest = clients.where("is_open").select(
        "key", "seq", F.col("retry_offset").alias("latest_retry")
    )
    found = latest.join(events, ["key", "seq"]).where(
        F.col("latest_retry").eqNullSafe(F.col("retry_offset"))
    )
    # Of two retries of one record either may be the latest: a client has one row in any case.
    return found.groupBy(F.col("key").alias("client")).agg(F.max("language").alias("language"))


class Holding(NamedTuple):
    """What a client held, as in `held_positions`, and its contact; None without a record."""

    positions: list[dict[str, str | None]]
    contact: "Contact | None"


class Contact(NamedTuple):
    """What the latest record of a client says."""

    name: str | None
    email: str | None
    subscribed: bool
    language: str | None


def holding_of(tables: Tables, snapshot: Snapshot, as_of: datetime, client: str) -> Holding:
    """Return what one client held then, and its contact. Without a JVM."""
    snapshot.require_history(as_of)
    counted = counted_positions(snapshot.rule, as_of, client=client)
    columns = ", ".join(f"u.{name}" for name in POSITION_FIELDS)
    sql = f"SELECT {columns} FROM ({counted}) u WHERE u.client = {text_literal(client)}"  # noqa: S608
    found = rows(tables, sql, at_snapshot(snapshot, *RELATIONS))
    in_order = sorted(found, key=lambda row: position_sort_key(row["position"]))
    return Holding(in_order, contact_of(tables, snapshot, client))


def contact_of(tables: Tables, snapshot: Snapshot, client: str) -> Contact | None:
    """Return the contact of one client; None if it has no record. Without a JVM."""
    opened = OpenedTables(tables, at_snapshot(snapshot, t.CLIENTS, t.CLIENT_EVENTS))
    key = text_literal(client)
    latest = (
        "SELECT name, email, subscribed, seq, retry_offset FROM clients"  # noqa: S608 - our own
        f" WHERE key = {key} AND is_open"
    )
    row = next(iter(opened.rows(latest)), None)
    if row is None:
        return None
    retry = row["retry_offset"]
    is_same = "IS NULL" if retry is None else f"= {retry:d}"
    events = (
        f"SELECT value FROM client_events WHERE key = {key} AND seq = {row['seq']:d}"  # noqa: S608
        f" AND kind = {text_literal(RecordKind.UPSERT)} AND retry_offset {is_same}"
    )
    mapping = mapping_in(snapshot.inputs, "clients") or InputMapping()
    found = filter(None, (_language_in(event["value"], mapping) for event in opened.rows(events)))
    subscribed = bool(row["subscribed"])
    return Contact(row["name"], row["email"], subscribed, max(found, default=None))


def _language_in(value: bytes | None, mapping: InputMapping) -> str | None:
    found = mapping.found_in(value or b"{}", mapping.sources("clients")[LANGUAGE])
    return found if isinstance(found, str) and len(found) <= _LONGEST_LANGUAGE else None


def unsubscribed_since(tables: Tables, snapshot: Snapshot, since: int) -> frozenset[str]:
    """Return the clients that a later snapshot than `since` knows as unsubscribed or deleted."""
    if snapshot.number <= since:
        return frozenset()
    # Rows of rebuilt tables may be other ones without being of a later snapshot.
    later = "true" if (snapshot.rebuilt_in or 0) > since else f"snapshot > {since:d}"
    sql = (
        f"SELECT key FROM clients WHERE {later}"  # noqa: S608 - a number
        " AND NOT (is_open AND COALESCE(subscribed, false))"
    )
    found = query(tables, sql, at_snapshot(snapshot, t.CLIENTS))
    return frozenset(found.column("key").to_pylist())


def holding_clients(
    tables: Tables, snapshot: Snapshot, as_of: datetime, client: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield (client, email, has_contact), each once in no order, of who held then: all, or one."""
    snapshot.require_history(as_of)
    condition = "true" if client is None else f"u.client = {text_literal(client)}"
    sql = _HOLDING.format(positions=counted_positions(snapshot.rule, as_of), condition=condition)
    return stream(tables, sql.strip(), at_snapshot(snapshot, *RELATIONS, t.CLIENTS))


class LatePositions(NamedTuple):
    """What counts as of an instant, of positions of which records were read after a snapshot.

    `rows` has the columns of POSITION_FIELDS after `client`. `keys` are the ids of these positions,
    also of those that do not count; None where it may be any: then `rows` has all that count.
    """

    rows: pa.Table
    keys: pa.ChunkedArray | None


def late_positions(
    tables: Tables, snapshot: Snapshot, since: int, rule: Rule, as_of: datetime
) -> LatePositions | None:
    """Return what a snapshot knows better than the one of the number `since`; None if nothing.

    That can only be so where records were read since that are older than the instant, or such of
    exchanges: what was read since is looked at first, and most often no more than that. Without a
    JVM. ShardpostError for an instant of which the history was pruned.
    """
    snapshot.require_history(as_of)
    later = f"snapshot > {since:d} AND kind <> {text_literal(RecordKind.REJECTED)}"
    late = f"{later} AND timestamp < {time_literal(as_of)}"
    is_any = (snapshot.rebuilt_in or 0) > since
    is_any = is_any or has_rows(tables, snapshot, t.EXCHANGE_EVENTS, later)
    if not (is_any or has_rows(tables, snapshot, t.POSITION_EVENTS, late)):
        return None
    opened = OpenedTables(tables, at_snapshot(snapshot, *RELATIONS))
    keys = f"SELECT DISTINCT key FROM position_events WHERE {late}"  # noqa: S608 - our own
    columns = ", ".join(f"u.{name}" for name in ("client", *POSITION_FIELDS))
    condition = "true" if is_any else f"u.position IN ({keys})"
    counted = counted_positions(rule, as_of)
    rows = opened.query(f"SELECT {columns} FROM ({counted}) u WHERE {condition}")  # noqa: S608
    return LatePositions(rows, None if is_any else opened.query(keys).column("key"))
