"""Why a client holds what it holds, and one position: who has it, why it counts, all its records.

A replay of the decodable records of positions, and of the exchanges that they name; no JVM.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from shardpost.delta.query import OpenedTables, at_snapshot, query, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.delta.table import text_literal
from shardpost.holders.model import explain
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import newest_first, order_of
from shardpost.holders.model.view_tables import EXCHANGE_EVENTS, POSITION_EVENTS, RETRY_NAMES
from shardpost.holders.model.who_holds import position_sort_key
from shardpost.installation import Installation
from shardpost.kafka.records import Coordinates

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
SELECT {RECORD}, h.client, h.ticker, h.amount, h.exchange, h.reason FROM position_events h
WHERE {{condition}} {{rest}}
"""  # noqa: S608 - constants
_EXCHANGES = f"""
SELECT {RECORD}, h.country FROM exchange_events h WHERE {_DECODABLE}
"""  # noqa: S608 - constants


def explanation(
    installation: Installation, snapshot: Snapshot, client: str, position: str | None
) -> list[explain.Transition]:
    """Return what added or removed each position of the client, or that one; [] if none."""
    history = _opened(installation, snapshot)
    # By two queries: all columns are then read only of row groups and pages that may have a key.
    select = _KEYS.format(condition=_condition(client, position))
    keys = [row["key"] for row in history.rows(select)]
    if not keys:
        return []
    of_keys = f"h.key IN ({select})" if len(keys) > KEYS_LISTED else in_lists(keys)
    changes = _replayed(installation, snapshot, client, history, of_keys)
    return [one for one in changes if one.change is not explain.Change.AMENDED]


def positions_ever(tables: Tables, snapshot: Snapshot, client: str) -> list[str]:
    """Return the ids of all positions that any record gave the client, in the order of a list."""
    select = _KEYS.format(condition=_condition(client, None))
    found = query(tables, select, at_snapshot(snapshot, POSITION_EVENTS))
    return sorted(found["key"].to_pylist(), key=position_sort_key)


def explanation_of(
    installation: Installation, snapshot: Snapshot, client: str, positions: list[str]
) -> list[explain.Transition]:
    """Return the same of KEYS_LISTED of the client's positions at most, with what AMENDED them."""
    if not positions:
        return []
    history = _opened(installation, snapshot)
    return _replayed(installation, snapshot, client, history, in_lists(positions))


def _condition(client: str, position: str | None) -> str:
    """Return the condition that a record, c, gave the client a position, or that one."""
    condition = f"c.client = {text_literal(client)}"
    return condition if position is None else f"{condition} AND c.key = {text_literal(position)}"


def _opened(installation: Installation, snapshot: Snapshot) -> OpenedTables:
    return OpenedTables(installation.tables, at_snapshot(snapshot, POSITION_EVENTS))


def _replayed(
    installation: Installation, snapshot: Snapshot, client: str, history: OpenedTables, of_keys: str
) -> list[explain.Transition]:
    positions = _records(installation, history, f"{_DECODABLE} AND ({of_keys})")
    exchanges = exchange_records(installation, snapshot, {record.exchange for record in positions})
    return explain.explain(client, positions, exchanges, snapshot.rule)


def in_lists(keys: Collection[str], column: str = "h.key") -> str:
    """Return the condition that a record, h, has one of those keys."""
    literals = [text_literal(key) for key in sorted(keys)]  # neighbours are in one row group
    starts = range(0, len(keys), KEYS_IN_A_LIST)
    lists = (", ".join(literals[at : at + KEYS_IN_A_LIST]) for at in starts)
    return " OR ".join(f"{column} IN ({one})" for one in lists)


def exchange_records(
    installation: Installation, snapshot: Snapshot, codes: set[str | None]
) -> list[explain.ExchangeRecord]:
    """Return all decodable records of these exchanges."""
    topic = installation.topic("exchanges")
    return [
        explain.ExchangeRecord(**_history_record(row, topic), country=row["country"])
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


@dataclass(frozen=True)
class PositionHistory:
    """A position by its records, the newest first, and by whom they made it held.

    `is_whole` tells whether these are all its records: of a position with more, what changed who
    holds it is what changed it among these.
    """

    position: str
    replay: explain.Replay
    records: Sequence[explain.PositionRecord]
    is_whole: bool

    @property
    def latest(self) -> explain.PositionRecord | None:
        """The record that is in effect, if there is one."""
        return next((one for one in self.records if one.kind is not RecordKind.REJECTED), None)

    @property
    def why(self) -> str:
        """Why it counts, or does not."""
        if self.replay.latest is None:
            return explain.why_unknown(has_records=bool(self.records))
        return self.replay.why(self.replay.owner or "")

    def as_json(self) -> dict[str, Any]:
        """Return client, counts, why; records; and changes with the client of each."""
        return {
            "position": self.position,
            "client": self.replay.owner,
            "counts": self.replay.holder is not None,
            "why": self.why,
            "records": [record.as_json() for record in self.records],
            "changes": [{"client": one.client, **one.as_json()} for one in self.replay.changes],
        }


def position_history(
    installation: Installation, snapshot: Snapshot, position: str
) -> PositionHistory:
    """Return what a snapshot knows of a position; without any record if it has none of it."""
    condition = f"h.key = {text_literal(position)}"
    newest = f"ORDER BY {newest_first('h')} LIMIT {MOST_RECORDS + 1}"
    found = _records(installation, _opened(installation, snapshot), condition, newest)
    kept = found[:MOST_RECORDS]
    good = [one for one in kept if one.kind is not RecordKind.REJECTED]
    exchanges = exchange_records(installation, snapshot, {record.exchange for record in good})
    return PositionHistory(
        position, explain.Replay.of(good, exchanges, snapshot.rule), kept, len(found) == len(kept)
    )


def rejected_of(
    installation: Installation, snapshot: Snapshot, positions: list[str]
) -> list[explain.PositionRecord]:
    """Return the newest rejected records of some positions, MOST_REJECTED at most."""
    if not positions:
        return []
    condition = f"h.kind = {text_literal(RecordKind.REJECTED)} AND ({in_lists(positions)})"
    newest = f"ORDER BY h.timestamp DESC, h.offset DESC LIMIT {MOST_REJECTED}"
    return _records(installation, _opened(installation, snapshot), condition, newest)


def _records(
    installation: Installation, history: OpenedTables, condition: str, rest: str = ""
) -> list[explain.PositionRecord]:
    topic, names = installation.topic("positions"), ("client", "ticker", "amount", "exchange")
    return [
        explain.PositionRecord(
            **_history_record(row, topic),
            **{name: row[name] for name in (*names, "reason")},
            kind=RecordKind(row["kind"]),
        )
        for row in history.rows(_POSITIONS.format(condition=condition, rest=rest))
    ]
