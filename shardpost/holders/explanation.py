"""The records that `explain` replays: those of one client's positions, from history; no JVM."""

from typing import Any

from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.sql import text_literal
from shardpost.holders.model.explain import ExchangeRecord, PositionRecord, Transition, explain
from shardpost.holders.model.record_kind import RecordKind
from shardpost.holders.model.record_order import order_of
from shardpost.holders.model.tables import EXCHANGE_EVENTS, POSITION_EVENTS, RETRY_NAMES
from shardpost.kafka.coordinates import Coordinates
from shardpost.settings import Settings

_RECORD = ", ".join(
    f"h.{name}"
    for name in (
        "key",
        "seq",
        "snapshot",
        "kind",
        '"partition"',
        "offset",
        "timestamp",
        *RETRY_NAMES,
    )
)
_DECODABLE = f"h.kind <> {text_literal(RecordKind.REJECTED)}"
# A subquery and no list: DataFusion's parser overflows its stack at tens of thousands of literals.
_POSITIONS = f"""
SELECT {_RECORD}, h.client, h.exchange FROM position_events h
WHERE {_DECODABLE} AND h.key IN (SELECT c.key FROM position_events c WHERE {{condition}})
"""  # noqa: S608 - constants
_EXCHANGES = f"""
SELECT {_RECORD}, h.country FROM exchange_events h WHERE {_DECODABLE}
"""  # noqa: S608 - constants


def explanation(
    settings: Settings, snapshot: Snapshot, client: str, position: str | None
) -> list[Transition]:
    """Return what put or took each position of the client, or that one; [] if it never had any."""
    positions = _positions(settings, snapshot, client, position)
    if not positions:
        return []
    exchanges = _exchanges(settings, snapshot, {record.exchange for record in positions})
    return explain(client, positions, exchanges, snapshot.country)


def _positions(
    settings: Settings, snapshot: Snapshot, client: str, position: str | None
) -> list[PositionRecord]:
    """Return all decodable records of the positions that were ever the client's."""
    condition = f"c.client = {text_literal(client)}"
    if position is not None:
        condition += f" AND c.key = {text_literal(position)}"
    sql = _POSITIONS.format(condition=condition)
    topic = settings.topic("positions")
    return [
        PositionRecord(**_record(row, topic), client=row["client"], exchange=row["exchange"])
        for row in rows(settings, sql, at_snapshot(snapshot, POSITION_EVENTS))
    ]


def _exchanges(
    settings: Settings, snapshot: Snapshot, codes: set[str | None]
) -> list[ExchangeRecord]:
    topic = settings.topic("exchanges")
    return [
        ExchangeRecord(**_record(row, topic), country=row["country"])
        for row in rows(settings, _EXCHANGES, at_snapshot(snapshot, EXCHANGE_EVENTS))
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
