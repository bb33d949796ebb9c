"""The records that `explain` replays: those of one client's positions, from history; no JVM."""

from typing import Any

from shardpost.delta.query import OpenedTables, at_snapshot, rows
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
# More keys than that are asked for by a subquery: at tens of thousands of literals DataFusion's
# parser overflows its stack.
KEYS_LISTED = 1_000
# Of longer lists DataFusion compares nothing with the bounds of row groups and pages.
KEYS_IN_A_LIST = 20
_KEYS = """
SELECT DISTINCT c.key FROM position_events c WHERE {condition}
"""
_POSITIONS = f"""
SELECT {_RECORD}, h.client, h.exchange FROM position_events h
WHERE {_DECODABLE} AND ({{of_keys}})
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
    topic = settings.topic("positions")
    return [
        PositionRecord(**_record(row, topic), client=row["client"], exchange=row["exchange"])
        for row in _rows_of_positions(settings, snapshot, condition)
    ]


def _rows_of_positions(
    settings: Settings, snapshot: Snapshot, condition: str
) -> list[dict[str, Any]]:
    """Return the records of the keys of which any record meets the condition.

    By two queries: all columns are then read only of the row groups and pages that may have a key.
    """
    history = OpenedTables(settings, at_snapshot(snapshot, POSITION_EVENTS))
    select = _KEYS.format(condition=condition)
    keys = sorted(row["key"] for row in history.rows(select))
    if not keys:
        return []
    of_keys = f"h.key IN ({select})" if len(keys) > KEYS_LISTED else _in_lists(keys)
    return history.rows(_POSITIONS.format(of_keys=of_keys))


def _in_lists(keys: list[str]) -> str:
    literals = [text_literal(key) for key in keys]
    starts = range(0, len(keys), KEYS_IN_A_LIST)
    lists = (", ".join(literals[at : at + KEYS_IN_A_LIST]) for at in starts)
    return " OR ".join(f"h.key IN ({one})" for one in lists)


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
