"""One position: who has it, why it counts or not, and all of its records, rejected ones too."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shardpost.delta.object_store import Tables
from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import text_literal
from shardpost.holders.model.as_of import RELATIONS, counted_positions
from shardpost.holders.model.explain import Standing, Transition, standing, transitions, why_unknown
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import newest_first
from shardpost.holders.model.view_tables import POSITION_EVENTS
from shardpost.holders.queries import RECORD, exchange_records, in_lists, position_record
from shardpost.installation import Installation
from shardpost.kafka.coordinates import Coordinates

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
