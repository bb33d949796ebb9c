"""Lists of holders: all, page by page, by a search; their contacts and positions.

They are read from the table share_holders; as of a time, by the rule (model/who_holds.py). Pages
are for who has no room for 200,000 holders: what is asked for is cut in SQL.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from shardpost.delta.query import OpenedTables, at_snapshot, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.delta.table import Table, text_literal
from shardpost.errors import UsageError
from shardpost.holders.model import who_holds
from shardpost.holders.model.view_tables import CLIENTS, EXCHANGES, POSITIONS, SHARE_HOLDERS
from shardpost.holders.position_history import in_lists
from shardpost.kafka.records import partition_of

# client -> ids of the positions that count, in the order of model/who_holds.py
Holders = dict[str, list[str]]


@dataclass(frozen=True)
class HoldersQuery:
    """Which holders: one client, of one shard, as of a time; None: whatever.

    As of no time it is the latest state of a snapshot. A page can be of the clients that a search
    finds, by names and e-mails also if `by_contact`.
    """

    client: str | None = None
    shard: int | None = None
    as_of: datetime | None = None
    search: str | None = None
    by_contact: bool = False


_WHOLE = "SELECT h.client, h.positions FROM {held} h WHERE {condition} ORDER BY h.client"


def query_holders(tables: Tables, snapshot: Snapshot, wanted: HoldersQuery) -> Holders:
    """Return who holds, by client; errors as of `holders_page`."""
    opened, of_wanted = _opened(tables, snapshot, wanted)
    table = opened.query(_WHOLE.format(**of_wanted))
    # Of whole columns, which is faster.
    lists = table["positions"].combine_chunks()
    ids, bounds = lists.values.to_pylist(), pairwise(lists.offsets.to_pylist())
    clients = table["client"].to_pylist()
    holders = {one: ids[a:b] for one, (a, b) in zip(clients, bounds, strict=True)}
    if wanted.as_of is None:
        return holders
    return {client: sorted(ids, key=who_holds.position_sort_key) for client, ids in holders.items()}


@dataclass(frozen=True)
class Holder:
    """A client, how many positions it holds, the first of these, and its shard."""

    client: str
    count: int
    positions: list[str]
    shard: int


@dataclass(frozen=True)
class HoldersPage:
    """Some of the holders, in the order of their ids, and how many there are.

    Or of the clients that a search finds, also those that hold nothing; `is_all`: it has no more.
    """

    holders: Sequence[Holder]
    total: int
    is_all: bool = True

    def as_json(self) -> dict[str, list[str]]:
        """Return the holders in the form of `holders --json`; pages must be whole."""
        return {one.client: one.positions for one in self.holders if one.count}


# The clients of a page first: the lists of all others are then not read.
_CLIENTS = (
    "SELECT h.client FROM {held} h WHERE {condition} ORDER BY h.client LIMIT {most} OFFSET {at}"
)
_TOTAL = "SELECT count(*) AS total FROM {held} h WHERE {condition}"
_LISTS = """
SELECT h.client, cardinality(h.positions) AS count, {positions} AS positions
FROM {held} h WHERE ({condition}) AND ({among})
"""
_HOLDING = "cardinality(h.positions) > 0"
# Those who held then, with the shard of all that ever held at a snapshot.
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
    if wanted.search is not None:
        every, is_all = _found(tables, snapshot, wanted)
        clients, total = every[first : first + most], len(every)
    else:
        total, is_all = opened.rows(_TOTAL.format(**own))[0]["total"], True
        page = opened.rows(_CLIENTS.format(**own, most=most, at=first)) if first < total else []
        clients = [row["client"] for row in page]
    if not clients:
        return HoldersPage([], total)
    # The ids of those who held then are in no order yet.
    is_cut = longest is not None and wanted.as_of is None
    positions = f"array_slice(h.positions, 1, {longest})" if is_cut else "h.positions"
    among = in_lists(clients, "h.client")
    found = {one: Holder(one, 0, [], partition_of(one, snapshot.shards)) for one in clients}
    for row in opened.rows(_LISTS.format(**own, positions=positions, among=among)):
        client, ids = row["client"], row["positions"]
        if wanted.as_of is not None:
            ids = sorted(ids, key=who_holds.position_sort_key)[:longest]
        found[client] = Holder(client, row["count"], ids, found[client].shard)
    return HoldersPage([*found.values()], total, is_all)


# A search finds no more than the first so many clients.
MOST_FOUND = 1_000
_FOUND = "SELECT {key} AS client FROM {table} WHERE {condition} ORDER BY 1 LIMIT {most}"
_HAS = "contains(lower({column}), lower({text}))"


def _found(tables: Tables, snapshot: Snapshot, wanted: HoldersQuery) -> tuple[list[str], bool]:
    """Return the clients that have the text in id, name or e-mail, in any case of letters.

    The first MOST_FOUND by id, and whether these are all. Of those without a record of their own
    it finds whoever ever held anything.
    """
    places: dict[Table, tuple[str, ...]] = {SHARE_HOLDERS: ("client",)}
    if wanted.by_contact and snapshot.has_contacts:
        places[CLIENTS] = ("key", "name", "email")
    ids, text = set(), text_literal(wanted.search or "")
    for table, columns in places.items():
        has = " OR ".join(_HAS.format(column=one, text=text) for one in columns)
        own = {"key": columns[0], "table": table.name, "most": MOST_FOUND + 1}
        sql = _FOUND.format(**own, condition=has)
        ids |= {row["client"] for row in rows(tables, sql, at_snapshot(snapshot, table))}
    found, shard = sorted(ids)[:MOST_FOUND], wanted.shard
    of_shard = [one for one in found if shard in (None, partition_of(one, snapshot.shards))]
    return of_shard, len(ids) <= MOST_FOUND


_CONTACTS = "SELECT h.key, h.name, h.email, h.subscribed FROM clients h WHERE {among}"
_TERMS = "SELECT t.* FROM ({counted}) t WHERE {among}"


def contacts_of(
    tables: Tables, snapshot: Snapshot, clients: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return {client: {name, email, subscribed}}; {} where contacts may not be read any more."""
    if not clients or not snapshot.has_contacts:
        return {}
    sql = _CONTACTS.format(among=in_lists(clients))
    found = rows(tables, sql, at_snapshot(snapshot, CLIENTS))
    return {row.pop("key"): row for row in found}


def terms_of(
    tables: Tables,
    snapshot: Snapshot,
    positions: Collection[str],
    at: datetime | None = None,
    client: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Return {position: {client, ticker, amount, exchange}} of those that count, now or then.

    With `client`, those of others need not be among them. ShardpostError for a time of which the
    history was pruned.
    """
    if not positions:
        return {}
    if at is not None:
        snapshot.require_history(at)
    counted = who_holds.counted_positions(snapshot.rule, at, client=client)
    sql = _TERMS.format(counted=counted, among=in_lists(positions, "t.position"))
    relations = who_holds.RELATIONS if at else (POSITIONS, EXCHANGES)
    found = rows(tables, sql, at_snapshot(snapshot, *relations))
    return {row.pop("position"): row for row in found}


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
        held, versions = _KEPT, at_snapshot(snapshot, *who_holds.RELATIONS, *more)
        opened = OpenedTables(tables, versions)
        select = who_holds.holders(snapshot.rule, at, client)
        opened.keep(_KEPT, _HELD_THEN_BY_SHARD.format(holders=select) if more else select)
        conditions = [_of_shard(opened, snapshot, shard)]
    if client is not None:
        conditions.append(f"h.client = {text_literal(client)}")
    return opened, {"held": held, "condition": " AND ".join(conditions)}


def _of_shard(opened: OpenedTables, snapshot: Snapshot, shard: int | None) -> str:
    """Return the condition that a holder at that time is in a shard.

    Who holds at no snapshot, but between two of them, has no shard in the table.
    """
    if shard is None:
        return "true"
    strays = opened.rows(f"SELECT h.client FROM {_KEPT} h WHERE h.shard IS NULL")  # noqa: S608
    own = [c for row in strays if partition_of(c := row["client"], snapshot.shards) == shard]
    literals = ", ".join(map(text_literal, own)) or "NULL"
    return f"(h.shard = {shard} OR (h.shard IS NULL AND h.client IN ({literals})))"
