"""Why something is not in an answer: nobody knows it, it is in another shard, or it came later."""

from datetime import datetime

from shardpost.delta.object_store import Tables
from shardpost.delta.snapshot import NEVER, Snapshot
from shardpost.errors import shown
from shardpost.holders.model.explain import why_unknown
from shardpost.holders.model.view_tables import CLIENT_EVENTS, POSITION_EVENTS
from shardpost.holders.queries import has_record, knows_client, knows_position
from shardpost.kafka.partitioning import partition_of


def why_no_holder(
    tables: Tables, snapshot: Snapshot, client: str, shard: int | None = None
) -> str | None:
    """Return why a client is not among the holders, if it is not that it holds nothing."""
    if not knows_client(tables, snapshot, client):
        return unknown_client(tables, snapshot, client)
    if shard is not None and (own := partition_of(client, snapshot.shards)) != shard:
        return f"{shown(client)} is in shard {own}, not in {shard}"
    return None


def unknown_client(tables: Tables, snapshot: Snapshot, client: str) -> str:
    """Return that no decodable record that a snapshot has names a client, and why."""
    is_rejected = has_record(tables, snapshot, CLIENT_EVENTS, client)
    why = why_unknown(has_records=True) if is_rejected else "no record of it or its positions"
    return f"client {shown(client)} is unknown to snapshot {snapshot.number}: {why}"


def unknown_position(snapshot: Snapshot, position: str, why: str) -> str:
    """Return that a snapshot has no decodable record of a position, and why."""
    return f"position {shown(position)} is unknown to snapshot {snapshot.number}: {why}"


def why_no_record(
    tables: Tables, snapshot: Snapshot, client: str, position: str | None = None
) -> str:
    """Return why there is nothing to explain: what is unknown, or never was the client's."""
    unknown = []
    if not knows_client(tables, snapshot, client):
        unknown.append(unknown_client(tables, snapshot, client))
    if position is not None and not knows_position(tables, snapshot, position):
        why = why_unknown(has_records=has_record(tables, snapshot, POSITION_EVENTS, position))
        unknown.append(unknown_position(snapshot, position, why))
    if unknown:
        return "; ".join(unknown)
    what = "any position" if position is None else f"position {shown(position)}"
    return f"no record that was read gave {shown(client)} {what}"


def not_covered(snapshot: Snapshot, as_of: datetime | None) -> str | None:
    """Return that a snapshot may lack records of before a time; None if it has them all.

    The snapshot is `as_known`.
    """
    if as_of is None or as_of <= snapshot.looked_at:
        return None
    if snapshot.looked_at == NEVER:
        return (
            f"up to when snapshot {snapshot.number} has all records is not known: later ones may"
            " not be in this answer; `shardpost compact` says why"
        )
    return (
        f"snapshot {snapshot.number} has what the topics held at"
        f" {snapshot.looked_at:%Y-%m-%d %H:%M:%S} UTC: later records are not in this answer;"
        " `shardpost compact` reads them"
    )


def pruned(snapshot: Snapshot) -> str | None:
    """Return which records have left the histories; None if none has."""
    if snapshot.history_from is None:
        return None
    at = f"{snapshot.history_from:%Y-%m-%d %H:%M} UTC"
    return f"records before {at} that later ones superseded were pruned (SHARDPOST_HISTORY_DAYS)"
