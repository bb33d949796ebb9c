"""Who holds at one snapshot: from share_holders, or as of a time from history; no JVM."""

from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import pyarrow as pa

from shardpost.delta.query import at_snapshot, query
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.sql import text_literal
from shardpost.errors import UsageError
from shardpost.holders.model import as_of
from shardpost.holders.model.position_id_order import position_sort_key
from shardpost.holders.model.tables import SHARE_HOLDERS
from shardpost.kafka.partitioning import partition_of
from shardpost.settings import Settings

# client -> ids of the positions that count, in the order of model/position_id_order.py
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


def query_holders(settings: Settings, snapshot: Snapshot, wanted: HoldersQuery) -> Holders:
    """Return who holds, by client; UsageError for a shard that does not exist.

    ShardpostError for a time of which the history was pruned.
    """
    shards = snapshot.shards
    if wanted.shard is not None and not 0 <= wanted.shard < shards:
        raise UsageError(f"shard {wanted.shard}: expected 0 to {shards - 1}")
    if wanted.as_of is None:
        return _latest(settings, snapshot, wanted)
    found = _as_of(settings, snapshot, wanted, wanted.as_of)
    if wanted.shard is None:
        return found
    return {c: ids for c, ids in found.items() if partition_of(c, shards) == wanted.shard}


def _latest(settings: Settings, snapshot: Snapshot, wanted: HoldersQuery) -> Holders:
    conditions = ["cardinality(s.positions) > 0"]
    if wanted.client is not None:
        conditions.append(f"s.client = {text_literal(wanted.client)}")
    if wanted.shard is not None:
        conditions.append(f"s.shard = {wanted.shard}")
    sql = _LATEST.format(conditions=" AND ".join(conditions))
    return _by_client(query(settings, sql, at_snapshot(snapshot, SHARE_HOLDERS)))


def _as_of(settings: Settings, snapshot: Snapshot, wanted: HoldersQuery, at: datetime) -> Holders:
    snapshot.require_history(at)
    condition = "true" if wanted.client is None else f"t.client = {text_literal(wanted.client)}"
    sql = _AS_OF.format(holders=as_of.holders(snapshot.country, at), condition=condition)
    found = _by_client(query(settings, sql, at_snapshot(snapshot, *as_of.RELATIONS)))
    return {client: sorted(ids, key=position_sort_key) for client, ids in found.items()}


def _by_client(found: pa.Table) -> Holders:
    """Return rows (client, positions) as a dict; from whole columns, which is faster."""
    clients = found["client"].to_pylist()
    lists = found["positions"].combine_chunks()
    ids = lists.values.to_pylist()
    bounds = lists.offsets.to_pylist()
    return {c: ids[a:b] for c, (a, b) in zip(clients, pairwise(bounds), strict=True)}
