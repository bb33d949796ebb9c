"""Who holds: all, or page by page; how they are spread over the shards; how many there were.

Who holds is in the table share_holders, or as of a time follows from history. Pages are for who has
no room for 200,000 holders: what is asked for is cut in SQL.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from shardpost.delta.object_store import Tables
from shardpost.delta.query import OpenedTables, at_snapshot, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.delta.storage import exists
from shardpost.delta.table import text_literal
from shardpost.errors import UsageError
from shardpost.holders.model import as_of
from shardpost.holders.model.as_of import position_sort_key
from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.kafka.partitioning import partition_of

# client -> ids of the positions that count, in the order of model/as_of.py
Holders = dict[str, list[str]]


@dataclass(frozen=True)
class HoldersQuery:
    """Which holders: one client, of one shard, as of a time, of ids that begin so; None: whatever.

    As of no time it is the latest state of a snapshot.
    """

    client: str | None = None
    shard: int | None = None
    as_of: datetime | None = None
    begins: str | None = None


_WHOLE = "SELECT h.client, h.positions FROM {held} h WHERE {condition} ORDER BY h.client"


def query_holders(tables: Tables, snapshot: Snapshot, wanted: HoldersQuery) -> Holders:
    """Return who holds, by client; UsageError for a shard that does not exist.

    ShardpostError for a time of which the history was pruned.
    """
    opened, of_wanted = _opened(tables, snapshot, wanted)
    table = opened.query(_WHOLE.format(**of_wanted))
    # Of whole columns, which is faster.
    lists = table["positions"].combine_chunks()
    ids, bounds = lists.values.to_pylist(), pairwise(lists.offsets.to_pylist())
    clients = table["client"].to_pylist()
    holders = {one: ids[a:b] for one, (a, b) in zip(clients, bounds, strict=True)}
    if wanted.as_of is None:
        return holders
    return {client: sorted(ids, key=position_sort_key) for client, ids in holders.items()}


@dataclass(frozen=True)
class Holder:
    """A client, how many positions it holds, the first of these, and its shard."""

    client: str
    count: int
    positions: list[str]
    shard: int


@dataclass(frozen=True)
class HoldersPage:
    """Some of the holders, in the order of their ids, and how many there are."""

    holders: Sequence[Holder]
    total: int

    def as_json(self) -> dict[str, list[str]]:
        """Return them in the form of `holders --json`; of pages that were read whole."""
        return {one.client: one.positions for one in self.holders}


# The clients of a page first: the lists of all others are then not read.
_CLIENTS = (
    "SELECT h.client FROM {held} h WHERE {condition} ORDER BY h.client LIMIT {most} OFFSET {at}"
)
_TOTAL = "SELECT count(*) AS total FROM {held} h WHERE {condition}"
_LISTS = """
SELECT h.client, cardinality(h.positions) AS count, {positions} AS positions, h.shard
FROM {held} h WHERE ({condition}) AND h.client BETWEEN {first} AND {last} ORDER BY h.client
"""
_HOLDING = "cardinality(h.positions) > 0"
# Those who held then; where it matters, with the shard of all that ever held at a snapshot.
_HELD_THEN = "SELECT t.client, t.positions, CAST(NULL AS INT) AS shard FROM ({holders}) t"
_HELD_THEN_BY_SHARD = """
SELECT t.client, t.positions, s.shard
FROM ({holders}) t LEFT JOIN share_holders s ON s.client = t.client
"""


def holders_page(
    tables: Tables,
    snapshot: Snapshot,
    wanted: HoldersQuery,
    *,
    first: int,
    most: int,
    longest: int | None = None,
) -> HoldersPage:
    """Return `most` holders from the one with that number on, each with its first positions.

    `longest` is how many positions of each; None: all. UsageError for a shard that does not exist,
    ShardpostError for a time of which the history was pruned.
    """
    opened, own = _opened(tables, snapshot, wanted)
    total = opened.rows(_TOTAL.format(**own))[0]["total"]
    clients = opened.rows(_CLIENTS.format(**own, most=most, at=first)) if first < total else []
    if not clients:
        return HoldersPage([], total)
    bounds = (text_literal(clients[at]["client"]) for at in (0, -1))
    # The ids of those who held then are in no order yet.
    is_cut = longest is not None and wanted.as_of is None
    positions = f"array_slice(h.positions, 1, {longest})" if is_cut else "h.positions"
    ends = dict(zip(("first", "last"), bounds, strict=True))
    found = opened.rows(_LISTS.format(**own, positions=positions, **ends))
    holders = []
    for row in found:
        client, ids, shard = row["client"], row["positions"], row["shard"]
        if wanted.as_of is not None:
            ids = sorted(ids, key=position_sort_key)[:longest]
        shard = partition_of(client, snapshot.shards) if shard is None else shard
        holders.append(Holder(client, row["count"], ids, shard))
    return HoldersPage(holders, total)


_KEPT = "held_then"


def _opened(
    tables: Tables, snapshot: Snapshot, wanted: HoldersQuery
) -> tuple[OpenedTables, dict[str, str]]:
    """Return the tables, and of which of them, `held`, which rows, `condition`, are wanted."""
    at, shard, client = wanted.as_of, wanted.shard, wanted.client
    if shard is not None and not 0 <= shard < snapshot.shards:
        raise UsageError(f"shard {shard}: expected 0 to {snapshot.shards - 1}")
    if at is None:
        opened = OpenedTables(tables, at_snapshot(snapshot, SHARE_HOLDERS))
        held, conditions = SHARE_HOLDERS.name, [_HOLDING]
        if shard is not None:
            conditions.append(f"h.shard = {shard}")
    else:
        snapshot.require_history(at)
        more = () if shard is None else (SHARE_HOLDERS,)
        held, opened = _KEPT, OpenedTables(tables, at_snapshot(snapshot, *as_of.RELATIONS, *more))
        select = _HELD_THEN if shard is None else _HELD_THEN_BY_SHARD
        opened.keep(_KEPT, select.format(holders=as_of.holders(snapshot.country, at, client)))
        conditions = [_of_shard(opened, snapshot, shard)]
    if client is not None:
        conditions.append(f"h.client = {text_literal(client)}")
    if wanted.begins is not None:
        conditions.append(f"starts_with(h.client, {text_literal(wanted.begins)})")
    return opened, {"held": held, "condition": " AND ".join(conditions)}


def _of_shard(opened: OpenedTables, snapshot: Snapshot, shard: int | None) -> str:
    """Return the condition that who held then is of a shard.

    Who holds at no snapshot, but between two of them, has no shard in the table.
    """
    if shard is None:
        return "true"
    strays = opened.rows(f"SELECT h.client FROM {_KEPT} h WHERE h.shard IS NULL")  # noqa: S608
    own = [c for row in strays if partition_of(c := row["client"], snapshot.shards) == shard]
    literals = ", ".join(map(text_literal, own)) or "NULL"
    return f"(h.shard = {shard} OR (h.shard IS NULL AND h.client IN ({literals})))"


@dataclass(frozen=True)
class ShardHolders:
    """How many clients of a shard hold how many positions, and the most that one of them holds."""

    shard: int
    clients: int
    positions: int
    most: int

    def as_json(self) -> dict[str, int]:
        """Return the same by name."""
        return vars(self).copy()


_SHARDS = f"""
SELECT h.shard, count(*) AS clients, CAST(sum(cardinality(h.positions)) AS BIGINT) AS positions,
  CAST(max(cardinality(h.positions)) AS BIGINT) AS most
FROM share_holders h WHERE {_HOLDING} GROUP BY h.shard
"""  # noqa: S608 - constants


def by_shard(tables: Tables, snapshot: Snapshot) -> list[ShardHolders]:
    """Return how the holders are spread over the shards, also over those that have none."""
    found = rows(tables, _SHARDS, at_snapshot(snapshot, SHARE_HOLDERS))
    known = {row["shard"]: ShardHolders(**row) for row in found}
    return [known.get(n, ShardHolders(n, 0, 0, 0)) for n in range(snapshot.shards)]


_COUNTS = """
SELECT snapshot, committed_at, positions, holders, held, rejected FROM snapshots ORDER BY snapshot
"""


def counts_over_time(tables: Tables) -> list[dict[str, Any]]:
    """Return {snapshot, committed_at, positions, holders, held, rejected} of all, oldest first."""
    return rows(tables, _COUNTS, {SNAPSHOTS: None}) if exists(tables, SNAPSHOTS) else []
