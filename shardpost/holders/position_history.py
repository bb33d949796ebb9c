"""Why a client holds what it holds, and one position: who has it, why it counts, all its records.

A replay of the decodable records of positions, and of the exchanges that they name; no JVM.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shardpost.delta.object_store import Tables
from shardpost.delta.query import OpenedTables, at_snapshot, query, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import text_literal
from shardpost.holders.model.as_of import RELATIONS, counted_positions, position_sort_key
from shardpost.holders.model.explain import (
    ExchangeRecord,
    PositionRecord,
    Standing,
    Transition,
    explain,
    standing,
    transitions,
    why_unknown,
)
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import newest_first, order_of
from shardpost.holders.model.view_tables import EXCHANGE_EVENTS, POSITION_EVENTS, RETRY_NAMES
from shardpost.installation import Installation
from shardpost.kafka.coordinates import Coordinates

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
    return PositionRecord(
        **_history_record(row, topic), client=row["client"], exchange=row["exchange"]
    )


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
        ExchangeRecord(**_history_record(row, topic), country=row["country"])
        for row in rows(installation.tables, _EXCHANGES, at_snapshot(snapshot, EXCHANGE_EVENTS))
        if row["key"] in codes
    ]


def _history_record(row: dict[str, Any], topic: str) -> dict[str, Any]:
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


# Of a position with more records than that, the newest are looked at.
MOST_RECORDS = 10_000
# So many rejected records are listed of the positions of a client.
MOST_REJECTED = 100

_ROWS = f"""
SELECT {RECORD}, h.client, h.ticker, h.amount, h.exchange, h.reason
FROM position_events h WHERE {{condition}} ORDER BY {{order}} LIMIT {{most}}
"""  # noqa: S608 - constants


@dataclass(frozen=True)
class RecordOfPosition:
    """One record of a position, what it says, and the snapshot that read it.

    `reason` is why it was rejected, None of one that was taken.
    """

    position: str
    coordinates: Coordinates
    timestamp: datetime
    snapshot: int
    kind: RecordKind
    client: str | None
    ticker: str | None
    amount: str | None
    exchange: str | None
    reason: str | None

    def as_json(self) -> dict[str, Any]:
        """Return it with its coordinates, without what a record of its kind has not."""
        values = {name: value for name, value in vars(self).items() if value is not None}
        del values["coordinates"]
        own = {"kind": str(self.kind), "timestamp": self.timestamp.isoformat()}
        return values | self.coordinates._asdict() | own


@dataclass(frozen=True)
class PositionHistory:
    """A position by its records, the newest first, and by whom they made it held.

    `is_whole` tells whether these are all its records: of a position with more, what changed who
    holds it is what changed it among these.
    """

    position: str
    standing: Standing | None
    records: Sequence[RecordOfPosition]
    changes: Sequence[Transition]
    is_whole: bool

    @property
    def why(self) -> str:
        """Why it counts, or does not."""
        if self.standing is not None:
            return self.standing.why
        return why_unknown(has_records=bool(self.records))

    def as_json(self) -> dict[str, Any]:
        """Return client, counts, why; records; and changes with the client of each."""
        return {
            "position": self.position,
            "client": self.standing.client if self.standing else None,
            "counts": bool(self.standing and self.standing.counts),
            "why": self.why,
            "records": [record.as_json() for record in self.records],
            "changes": [{"client": one.client, **one.as_json()} for one in self.changes],
        }


def position_history(
    installation: Installation, snapshot: Snapshot, position: str
) -> PositionHistory:
    """Return what a snapshot knows of a position; without any record if it has none of it."""
    condition = f"h.key = {text_literal(position)}"
    found = _rows(installation.tables, snapshot, condition, newest_first("h"), MOST_RECORDS + 1)
    kept, topic = found[:MOST_RECORDS], installation.kafka.topic("positions")
    good = [position_record(row, topic) for row in kept if row["kind"] != RecordKind.REJECTED]
    exchanges = exchange_records(installation, snapshot, {record.exchange for record in good})
    return PositionHistory(
        position,
        standing(good, exchanges, snapshot.country) if good else None,
        [_record(row, topic) for row in kept],
        transitions(good, exchanges, snapshot.country) if good else [],
        len(found) == len(kept),
    )


_HOLDER_THEN = "SELECT t.client FROM ({counted}) t WHERE t.position = {position}"


def holder_then(tables: Tables, snapshot: Snapshot, position: str, at: datetime) -> str | None:
    """Return who held a position as of a time; None if nobody, or if it did not count.

    ShardpostError for a time of which the history was pruned.
    """
    snapshot.require_history(at)
    counted = counted_positions(snapshot.country, at)
    sql = _HOLDER_THEN.format(counted=counted, position=text_literal(position))
    found = rows(tables, sql, at_snapshot(snapshot, *RELATIONS))
    return found[0]["client"] if found else None


def rejected_of(
    installation: Installation, snapshot: Snapshot, positions: list[str]
) -> list[RecordOfPosition]:
    """Return the newest rejected records of some positions, MOST_REJECTED at most."""
    if not positions:
        return []
    condition = f"h.kind = {text_literal(RecordKind.REJECTED)} AND ({in_lists(positions)})"
    order = "h.timestamp DESC, h.offset DESC"
    found = _rows(installation.tables, snapshot, condition, order, MOST_REJECTED)
    return [_record(row, installation.kafka.topic("positions")) for row in found]


def _rows(
    tables: Tables, snapshot: Snapshot, condition: str, order: str, most: int
) -> list[dict[str, Any]]:
    sql = _ROWS.format(condition=condition, order=order, most=most)
    return rows(tables, sql, at_snapshot(snapshot, POSITION_EVENTS))


def _record(row: dict[str, Any], topic: str) -> RecordOfPosition:
    values = {name: row[name] for name in ("client", "ticker", "amount", "exchange", "reason")}
    return RecordOfPosition(
        row["key"],
        position_record(row, topic).coordinates,
        row["timestamp"],
        row["snapshot"],
        RecordKind(row["kind"]),
        **values,
    )
