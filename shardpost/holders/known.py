"""Which clients and positions a snapshot knows at all: those of which a record was read; no JVM."""

from shardpost.delta.query import at_snapshot, query
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.sql import text_literal
from shardpost.delta.table import Table
from shardpost.holders.model.record_kind import RecordKind
from shardpost.holders.model.tables import CLIENT_EVENTS, POSITION_EVENTS
from shardpost.settings import Settings


def knows_client(settings: Settings, snapshot: Snapshot, client: str) -> bool:
    """Tell whether the snapshot has a decodable record of a client, or of a position of it.

    Of one before the last erasure only the positions are known.
    """
    return _has(settings, snapshot, POSITION_EVENTS, "client", client) or (
        snapshot.has_contacts and _has(settings, snapshot, CLIENT_EVENTS, "key", client)
    )


def knows_position(settings: Settings, snapshot: Snapshot, position: str) -> bool:
    """Tell whether the snapshot has a decodable record of a position."""
    return _has(settings, snapshot, POSITION_EVENTS, "key", position)


def _has(settings: Settings, snapshot: Snapshot, table: Table, column: str, value: str) -> bool:
    sql = (
        f"SELECT 1 FROM {table.name} h WHERE h.kind <> {text_literal(RecordKind.REJECTED)}"  # noqa: S608
        f" AND h.{column} = {text_literal(value)} LIMIT 1"
    )
    return bool(query(settings, sql, at_snapshot(snapshot, table)).num_rows)
