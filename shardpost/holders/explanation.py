"""What `explain` replays: the records of one client's positions, from history. No JVM."""

from typing import Any

from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.sql import text_literal
from shardpost.holders.model.explain import (
    ExchangeRecord,
    PositionRecord,
    TimedCoordinates,
    Transition,
    explain,
)
from shardpost.holders.model.record_order import Order, order_of
from shardpost.holders.model.tables import EXCHANGE_EVENTS, POSITION_EVENTS
from shardpost.settings import Settings

# A subquery and no list: of tens of thousands of literals DataFusion's parser overflows its stack.
_POSITIONS = """
SELECT h.key, h.seq, h.snapshot, h."partition", h.offset, h.timestamp,
  h.retry_topic, h.retry_partition, h.retry_offset, h.client, h.exchange
FROM position_events h WHERE h.kind <> 'rejected'
  AND h.key IN (SELECT c.key FROM position_events c WHERE {wanted})
"""
_EXCHANGES = """
SELECT x.key, x.seq, x.snapshot, x."partition", x.offset, x.timestamp,
  x.retry_topic, x.retry_partition, x.retry_offset, x.country
FROM exchange_events x WHERE x.kind <> 'rejected'
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
) -> list[PositionRecord]:
    wanted = f"c.client = {text_literal(client)}"
    if position is not None:
        wanted += f" AND c.key = {text_literal(position)}"
    found = rows(settings, _POSITIONS.format(wanted=wanted), at_snapshot(snapshot, POSITION_EVENTS))
    topic = settings.topic("positions")
    return [
        PositionRecord(*_coordinates(row, topic), row["client"], row["exchange"]) for row in found
    ]


def _exchanges(
    settings: Settings, snapshot: Snapshot, positions: list[PositionRecord]
) -> list[ExchangeRecord]:
    named = {record.exchange for record in positions}
    topic = settings.topic("exchanges")
    return [
        ExchangeRecord(*_coordinates(row, topic), row["country"])
        for row in rows(settings, _EXCHANGES, at_snapshot(snapshot, EXCHANGE_EVENTS))
        if row["key"] in named
    ]


def _coordinates(row: dict[str, Any], topic: str) -> tuple[str, Order, int, TimedCoordinates]:
    retry_offset: int | None = row["retry_offset"]
    order = order_of(row["seq"], row["snapshot"], retry_offset)
    if retry_offset is None:
        place = TimedCoordinates(topic, row["partition"], row["offset"], row["timestamp"])
    else:
        place = TimedCoordinates(
            row["retry_topic"], row["retry_partition"], retry_offset, row["timestamp"]
        )
    return row["key"], order, row["snapshot"], place
