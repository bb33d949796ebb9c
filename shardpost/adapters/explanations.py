"""What `explain` replays: the records of one client's positions, from history. No JVM."""

from typing import Any

from shardpost.adapters.delta import at_snapshot, rows
from shardpost.domain.as_of import text
from shardpost.domain.explain import ExchangeRead, Place, PositionRead, Transition, explain
from shardpost.domain.snapshot import Snapshot
from shardpost.domain.tables import EXCHANGE_EVENTS, POSITION_EVENTS
from shardpost.settings import Settings

_KEYS = "SELECT DISTINCT c.key FROM position_events c WHERE c.client = {client}"
_POSITIONS = """
SELECT h.key, h.seq, h.snapshot, h."partition", h.offset, h.timestamp, h.client, h.exchange
FROM position_events h WHERE h.kind <> 'rejected' AND h.key IN ({keys})
"""
_EXCHANGES = """
SELECT x.key, x.seq, x.snapshot, x."partition", x.offset, x.timestamp, x.country
FROM exchange_events x WHERE x.kind <> 'rejected' AND x.key IN ({exchanges})
"""


def explanation(
    settings: Settings, snapshot: Snapshot, client: str, position: str | None
) -> list[Transition]:
    """Return what put or took each position of the client, or that one; [] if it never had any."""
    positions = _positions(settings, snapshot, client, position)
    if not positions:
        return []
    exchanges = _exchanges(settings, snapshot, positions)
    return explain(client, positions, exchanges, snapshot.country)


def _positions(
    settings: Settings, snapshot: Snapshot, client: str, position: str | None
) -> list[PositionRead]:
    keys = _KEYS.format(client=text(client))
    if position is not None:
        keys += f" AND c.key = {text(position)}"
    versions = at_snapshot(snapshot, POSITION_EVENTS)
    found = rows(settings, keys, versions)
    if not found:
        return []
    named = ", ".join(text(row["key"]) for row in found)
    topic = settings.topic("positions")
    return [
        PositionRead(*_coordinates(row, topic), row["client"], row["exchange"])
        for row in rows(settings, _POSITIONS.format(keys=named), versions)
    ]


def _exchanges(
    settings: Settings, snapshot: Snapshot, positions: list[PositionRead]
) -> list[ExchangeRead]:
    codes = sorted({record.exchange for record in positions if record.exchange is not None})
    sql = _EXCHANGES.format(exchanges=", ".join(map(text, codes)))
    topic = settings.topic("exchanges")
    return [
        ExchangeRead(*_coordinates(row, topic), row["country"])
        for row in rows(settings, sql, at_snapshot(snapshot, EXCHANGE_EVENTS))
    ]


def _coordinates(row: dict[str, Any], topic: str) -> tuple[str, int, int, Place]:
    place = Place(topic, row["partition"], row["offset"], row["timestamp"])
    return row["key"], row["seq"], row["snapshot"], place
