"""What people ask of one snapshot, without a JVM: who is known, who holds, and why; and any SQL.

Known are clients and positions of which a record was read. Who holds is in share_holders, or as of
a time follows from history. `explain` replays the records of one client's positions.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyarrow.lib import ArrowException

from shardpost.delta.object_store import Tables
from shardpost.delta.query import OpenedTables, at_snapshot, has_rows, query, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.delta.storage import exists
from shardpost.delta.table import Table, Version, text_literal
from shardpost.errors import ShardpostError, UsageError
from shardpost.holders.model import as_of
from shardpost.holders.model.as_of import position_sort_key
from shardpost.holders.model.explain import ExchangeRecord, PositionRecord, Transition, explain
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import order_of
from shardpost.holders.model.view_tables import (
    CLIENT_EVENTS,
    EXCHANGE_EVENTS,
    POSITION_EVENTS,
    RETRY_NAMES,
    SHARE_HOLDERS,
    VIEW,
)
from shardpost.installation import Installation
from shardpost.kafka.coordinates import Coordinates
from shardpost.kafka.partitioning import partition_of


def knows_client(tables: Tables, snapshot: Snapshot, client: str) -> bool:
    """Tell whether the snapshot has a decodable record of a client, or of a position of it.

    Of one before the last erasure only the positions are known.
    """
    return _has(tables, snapshot, POSITION_EVENTS, "client", client) or (
        snapshot.has_contacts and _has(tables, snapshot, CLIENT_EVENTS, "key", client)
    )


def knows_position(tables: Tables, snapshot: Snapshot, position: str) -> bool:
    """Tell whether the snapshot has a decodable record of a position."""
    return _has(tables, snapshot, POSITION_EVENTS, "key", position)


def has_record(tables: Tables, snapshot: Snapshot, history: Table, key: str) -> bool:
    """Tell whether the snapshot has any record of a key, also a rejected one, that may be read."""
    may_read = snapshot.has_contacts or not history.contacts
    return may_read and has_rows(tables, snapshot, history, f"key = {text_literal(key)}")


def _has(tables: Tables, snapshot: Snapshot, table: Table, column: str, value: str) -> bool:
    is_decodable = f"kind <> {text_literal(RecordKind.REJECTED)}"
    condition = f"{is_decodable} AND {column} = {text_literal(value)}"
    return has_rows(tables, snapshot, table, condition)


# client -> ids of the positions that count, in the order of model/as_of.py
Holders = dict[str, list[str]]

_LATEST = """
SELECT s.client, s.positions FROM share_holders s WHERE {conditions} ORDER BY s.client
"""
_AS_OF = "SELECT t.client, t.positions FROM ({holders}) t WHERE {condition} ORDER BY t.client"


@dataclass(frozen=True)
class HoldersQuery:
    """Which holders: of one client or all, of one shard or all, as of a time or the latest."""

    client: str | None = None
    shard: int | None = None
    as_of: datetime | None = None


def query_holders(tables: Tables, snapshot: Snapshot, wanted: HoldersQuery) -> Holders:
    """Return who holds, by client; UsageError for a shard that does not exist.

    ShardpostError for a time of which the history was pruned.
    """
    shards = snapshot.shards
    if wanted.shard is not None and not 0 <= wanted.shard < shards:
        raise UsageError(f"shard {wanted.shard}: expected 0 to {shards - 1}")
    if wanted.as_of is None:
        return _latest(tables, snapshot, wanted)
    holders = _as_of(tables, snapshot, wanted, wanted.as_of)
    if wanted.shard is None:
        return holders
    return {c: ids for c, ids in holders.items() if partition_of(c, shards) == wanted.shard}


def _latest(tables: Tables, snapshot: Snapshot, wanted: HoldersQuery) -> Holders:
    conditions = ["cardinality(s.positions) > 0"]
    if wanted.client is not None:
        conditions.append(f"s.client = {text_literal(wanted.client)}")
    if wanted.shard is not None:
        conditions.append(f"s.shard = {wanted.shard}")
    sql = _LATEST.format(conditions=" AND ".join(conditions))
    return _by_client(query(tables, sql, at_snapshot(snapshot, SHARE_HOLDERS)))


def _as_of(tables: Tables, snapshot: Snapshot, wanted: HoldersQuery, at: datetime) -> Holders:
    snapshot.require_history(at)
    condition = "true" if wanted.client is None else f"t.client = {text_literal(wanted.client)}"
    select = as_of.holders(snapshot.country, at, wanted.client)
    sql = _AS_OF.format(holders=select, condition=condition)
    holders = _by_client(query(tables, sql, at_snapshot(snapshot, *as_of.RELATIONS)))
    return {client: sorted(ids, key=position_sort_key) for client, ids in holders.items()}


def _by_client(table: pa.Table) -> Holders:
    """Return rows (client, positions) as a dict; from whole columns, which is faster."""
    clients = table["client"].to_pylist()
    lists = table["positions"].combine_chunks()
    ids = lists.values.to_pylist()
    bounds = lists.offsets.to_pylist()
    return {c: ids[a:b] for c, (a, b) in zip(clients, pairwise(bounds), strict=True)}


_COLUMNS = ("key", "seq", "snapshot", "kind", '"partition"', "offset", "timestamp", *RETRY_NAMES)
RECORD = ", ".join(f"h.{name}" for name in _COLUMNS)
_DECODABLE = f"h.kind <> {text_literal(RecordKind.REJECTED)}"
# More keys than that are asked for by a subquery: at tens of thousands of literals DataFusion's
# parser overflows its stack.
KEYS_LISTED = 1_000
# Of longer lists DataFusion compares nothing with the bounds of row groups and pages.
KEYS_IN_A_LIST = 20
_KEYS = """
SELECT DISTINCT c.key FROM position_events c WHERE {condition}
"""
_POSITIONS = f"""
SELECT {RECORD}, h.client, h.exchange FROM position_events h
WHERE {_DECODABLE} AND ({{of_keys}})
"""  # noqa: S608 - constants
_EXCHANGES = f"""
SELECT {RECORD}, h.country FROM exchange_events h WHERE {_DECODABLE}
"""  # noqa: S608 - constants


def explanation(
    installation: Installation, snapshot: Snapshot, client: str, position: str | None
) -> list[Transition]:
    """Return what put or took each position of the client, or that one; [] if it never had any."""
    found = _rows_of_positions(installation.tables, snapshot, _condition(client, position))
    return _replayed(installation, snapshot, client, found)


def _rows_of_positions(tables: Tables, snapshot: Snapshot, condition: str) -> list[dict[str, Any]]:
    """Return the records of the keys of which any record meets the condition.

    By two queries: all columns are then read only of the row groups and pages that may have a key.
    """
    history = OpenedTables(tables, at_snapshot(snapshot, POSITION_EVENTS))
    select = _KEYS.format(condition=condition)
    keys = [row["key"] for row in history.rows(select)]
    if not keys:
        return []
    of_keys = f"h.key IN ({select})" if len(keys) > KEYS_LISTED else in_lists(keys)
    return history.rows(_POSITIONS.format(of_keys=of_keys))


def positions_ever(tables: Tables, snapshot: Snapshot, client: str) -> list[str]:
    """Return the ids of all positions that any record gave the client, in the order of a list."""
    select = _KEYS.format(condition=_condition(client, None))
    found = query(tables, select, at_snapshot(snapshot, POSITION_EVENTS))
    return sorted(found["key"].to_pylist(), key=position_sort_key)


def explanation_of(
    installation: Installation, snapshot: Snapshot, client: str, positions: list[str]
) -> list[Transition]:
    """Return the same of those of the client's positions alone, KEYS_LISTED at most."""
    if not positions:
        return []
    sql = _POSITIONS.format(of_keys=in_lists(positions))
    found = rows(installation.tables, sql, at_snapshot(snapshot, POSITION_EVENTS))
    return _replayed(installation, snapshot, client, found)


def _condition(client: str, position: str | None) -> str:
    """Return the condition that a record, c, gave the client a position, or that one."""
    condition = f"c.client = {text_literal(client)}"
    return condition if position is None else f"{condition} AND c.key = {text_literal(position)}"


def _replayed(
    installation: Installation, snapshot: Snapshot, client: str, found: list[dict[str, Any]]
) -> list[Transition]:
    if not found:
        return []
    positions = [position_record(row, installation.topic("positions")) for row in found]
    exchanges = exchange_records(installation, snapshot, {record.exchange for record in positions})
    return explain(client, positions, exchanges, snapshot.country)


def position_record(row: dict[str, Any], topic: str) -> PositionRecord:
    """Return the record of a row of position_events with the columns of RECORD."""
    return PositionRecord(**_record(row, topic), client=row["client"], exchange=row["exchange"])


def in_lists(keys: list[str]) -> str:
    """Return the condition that a record, h, has one of those keys."""
    literals = [text_literal(key) for key in sorted(keys)]  # neighbours are in one row group
    starts = range(0, len(keys), KEYS_IN_A_LIST)
    lists = (", ".join(literals[at : at + KEYS_IN_A_LIST]) for at in starts)
    return " OR ".join(f"h.key IN ({one})" for one in lists)


def exchange_records(
    installation: Installation, snapshot: Snapshot, codes: set[str | None]
) -> list[ExchangeRecord]:
    """Return all decodable records of these exchanges."""
    topic = installation.topic("exchanges")
    return [
        ExchangeRecord(**_record(row, topic), country=row["country"])
        for row in rows(installation.tables, _EXCHANGES, at_snapshot(snapshot, EXCHANGE_EVENTS))
        if row["key"] in codes
    ]


def _record(row: dict[str, Any], topic: str) -> dict[str, Any]:
    """Return the fields of a HistoryRecord."""
    retry_offset: int | None = row["retry_offset"]
    coordinates = (
        Coordinates(topic, row["partition"], row["offset"])
        if retry_offset is None
        else Coordinates(row["retry_topic"], row["retry_partition"], retry_offset)
    )
    return {
        "key": row["key"],
        "order": order_of(row["seq"], row["snapshot"], retry_offset, row["kind"]),
        "snapshot": row["snapshot"],
        "coordinates": coordinates,
        "timestamp": row["timestamp"],
    }


# What begins so is a query for DataFusion's parser, whatever follows, and one statement is all that
# it takes: so nothing is written, and no file is read that is not one of the tables.
_QUERY = re.compile(r"[\s(]*(SELECT|WITH|VALUES)\b", re.IGNORECASE | re.ASCII)
_ONE_QUERY = "expected one query that begins with SELECT, WITH or VALUES: tables are only read"
_SEVERAL_OR_WRITING = re.compile(r"only supports a single SQL statement|\(?Query INSERT")
_NO_TABLE = re.compile(r"table '(?:datafusion\.public\.)?(.*)' not found")
_NO_FUNCTION = re.compile(r"No function matches .*")  # before it, it asks for a bug report
_IS_TEXT = (
    "; amounts are text, as they were written: CAST(amount AS DOUBLE), or AS DECIMAL(38, 9)"
    " where each digit counts"
)
_EVERY = replace(SNAPSHOTS, name="every_snapshot", folder=SNAPSHOTS.path)


# How to find out of which tables, each with a part of its rows, a table consists.
Parts = Mapping[Table, Callable[[], Sequence[Table]]]


def ask(
    tables: Tables, snapshot: Snapshot, statement: str, others: Collection[Table], parts: Parts
) -> pa.RecordBatchReader:
    """Return what a query in SQL finds in the tables as a snapshot has them, as it comes.

    And in `others`, as they are now, but for the rows of `snapshots` after that one; some of them
    are those of `parts`. UsageError for what is no query, and for one that DataFusion cannot plan;
    while it is read, ShardpostError for one that fails.
    """
    if not _QUERY.match(statement):
        raise UsageError(f"sql: {_ONE_QUERY}")
    opened = _opened(tables, snapshot, statement, others, parts)
    try:
        found = opened.reader(statement)
    except DeltaError as error:
        raise UsageError(f"sql: {_why_not(error, others)}") from None
    if not found.schema.names:
        raise UsageError("sql: expected a query that returns columns, found one without any")
    return pa.RecordBatchReader.from_batches(found.schema, _reported(found))


def _opened(
    tables: Tables, snapshot: Snapshot, statement: str, others: Collection[Table], parts: Parts
) -> OpenedTables:
    """Return the tables of which a statement has the names; no other needs to be readable."""
    named = [t for t in (*VIEW, *others) if re.search(rf"\b{t.name}\b", statement)]
    versions: dict[Table, Version] = at_snapshot(snapshot, *(t for t in named if t in VIEW))
    now = (t for t in named if t not in (*VIEW, SNAPSHOTS, *parts))
    versions |= {table: None for table in now if exists(tables, table)}
    defined = {}
    if SNAPSHOTS in named:
        versions[_EVERY] = None
        condition = f"snapshot <= {snapshot.number}"
        defined[SNAPSHOTS] = f"SELECT * FROM {_EVERY.name} WHERE {condition}"  # noqa: S608
    for table in (t for t in named if t in parts):
        each = [
            replace(part, name=f"part_{number}_of_{table.name}")
            for number, part in enumerate(parts[table]())
        ]
        versions |= dict.fromkeys(each)
        if each:  # a part of another release may lack a column
            selects = (f"SELECT * FROM {part.name}" for part in each)  # noqa: S608
            defined[table] = " UNION ALL BY NAME ".join(selects)
    opened = OpenedTables(tables, versions)
    for table, select in defined.items():
        opened.define(table.name, select)
    return opened


def _why_not(error: DeltaError, others: Collection[Table]) -> str:
    text = " ".join(str(error).split())
    if _SEVERAL_OR_WRITING.search(text):
        return _ONE_QUERY
    if not (missing := _NO_TABLE.search(text)):
        text = found[0] if (found := _NO_FUNCTION.search(text)) else text
        return text + _IS_TEXT * ("Utf8View" in text)
    names = [table.name for table in (*VIEW, *others)]
    if missing[1] in names:
        return f"no table {missing[1]} yet: nothing was written to it"
    return f"no table {missing[1]}: expected one of {', '.join(names)}"


def _reported(found: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    try:
        yield from found
    except ArrowException as error:
        raise ShardpostError(f"sql: the query failed: {' '.join(str(error).split())}") from None
