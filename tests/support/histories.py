"""Histories of positions and exchanges: a plain fold, and the tables a compaction makes of them.

The fold is the reference that SQL is held against; the tables are written with deltalake: no JVM.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from shardpost.delta import snapshots, storage
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import OpenedTables
from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.delta.table import Table
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.view_tables import (
    CLIENT_EVENTS,
    EXCHANGE_EVENTS,
    EXCHANGES,
    POSITION_EVENTS,
    POSITIONS,
    SHARE_HOLDERS,
    SHARE_HOLDERS_CHANGES,
)
from shardpost.holders.model.who_holds import condition_of, holders, position_sort_key
from shardpost.kafka.records import partition_of
from shardpost.settings import Settings
from shardpost.values.holding_rule import Rule
from tests.support.installed import installed

START = datetime(2026, 11, 16, tzinfo=UTC)
SHARDS = 8
US = Rule("US")


@dataclass(frozen=True)
class Record:
    """One record of `positions` or `exchanges`; `hour` is its timestamp, counted from START."""

    key: str
    hour: int
    kind: RecordKind = RecordKind.UPSERT
    client: str | None = None
    exchange: str | None = None
    country: str | None = None
    seq: int = -1
    snapshot: int = 1
    origin: int | None = None  # of a retry: its origin among the records of its key before it
    retry_offset: int | None = None
    ticker: str = "AAPL"
    amount: str = "100"

    @property
    def order(self) -> tuple[int, float, float]:
        """Return what sorts the records of a key: their origins, and of one the retries.

        Above them is what closed the key in the place of that origin.
        """
        if self.kind is RecordKind.RECONCILED:
            return self.seq, float("inf"), 1
        if self.retry_offset is None:
            return self.seq, float("inf"), 0
        return self.seq, self.snapshot, self.retry_offset

    @property
    def timestamp(self) -> datetime:
        return START + timedelta(hours=self.hour)

    def row(self) -> dict[str, Any]:
        """Return the record with the columns of its history and of its latest state."""
        return {
            **asdict(self),
            "timestamp": self.timestamp,
            "retry_topic": None if self.retry_offset is None else "retries",
            "retry_partition": None if self.retry_offset is None else 0,
            "partition": self.seq % 3,
            "offset": self.seq,
            "ticker": self.ticker if self.client else None,
            "amount": self.amount if self.client else None,
            "is_open": self.kind is RecordKind.UPSERT,
        }


def put(key: str, client: str, exchange: str, hour: int = 0, amount: str = "100") -> Record:
    """Return a record of `positions`."""
    return Record(key, hour, client=client, exchange=exchange, amount=amount)


def close(key: str, hour: int = 0) -> Record:
    """Return a tombstone of either topic."""
    return Record(key, hour, RecordKind.TOMBSTONE)


def reject(key: str, hour: int = 0) -> Record:
    """Return a record that could not be decoded, of either topic."""
    return Record(key, hour, RecordKind.REJECTED)


def retry(record: Record, origin: int) -> Record:
    """Return a retry; its origin is so many records of its key back, counted round."""
    return replace(record, origin=origin)


def reconcile(key: str, hour: int = 0) -> Record:
    """Return what closes a key whose highest record is gone, of either topic."""
    return Record(key, hour, RecordKind.RECONCILED)


def country_of(exchange: str, country: str | None, hour: int = 0) -> Record:
    """Return a record of `exchanges`."""
    return Record(exchange, hour, country=country)


@dataclass(frozen=True)
class Batch:
    """What one snapshot read, each topic in the order of its offsets.

    `unfolded` are names of tables whose files this snapshot left as they were, or appended to.
    """

    positions: Sequence[Record] = ()
    exchanges: Sequence[Record] = ()
    unfolded: frozenset[str] = frozenset()


@dataclass(frozen=True)
class History:
    """Both topics' records, each with its seq and snapshot number."""

    positions: list[Record]
    exchanges: list[Record]


def history_of(batches: Sequence[Batch]) -> History:
    """Return the records, each with its seq and, by its batch, its snapshot."""
    return History(
        _numbered(batch.positions for batch in batches),
        _numbered(batch.exchanges for batch in batches),
    )


def _numbered(parts: Iterable[Sequence[Record]]) -> list[Record]:
    flat = [(record, n) for n, part in enumerate(parts, 1) for record in part]
    found: list[Record] = []
    for offset, (record, n) in enumerate(flat):
        found.append(_placed(replace(record, seq=offset, snapshot=n), found))
    return found


def _placed(record: Record, before: Sequence[Record]) -> Record:
    """Return a retry in the place of its origin; one of nothing becomes an original.

    What closes a key is in the place of its highest record; of a key without any it is a tombstone.
    """
    if record.kind is RecordKind.RECONCILED:
        known = [r.seq for r in before if r.key == record.key]
        kind = RecordKind.RECONCILED if known else RecordKind.TOMBSTONE
        return replace(record, kind=kind, seq=max(known, default=record.seq))
    if record.origin is None:
        return record
    originals = [
        r
        for r in before
        if r.key == record.key and r.retry_offset is None and r.kind is not RecordKind.RECONCILED
    ]
    if not originals:
        return record
    origin = originals[-1 - record.origin % len(originals)]
    return replace(record, seq=origin.seq, retry_offset=record.seq)


def latest(records: Iterable[Record]) -> dict[str, Record]:
    """Return the latest decodable record per key."""
    known: dict[str, Record] = {}
    for record in sorted(records, key=lambda record: record.order):
        if record.kind is not RecordKind.REJECTED:
            known[record.key] = record
    return known


def holders_of(
    history: History, as_of: datetime | None = None, rule: Rule = US
) -> dict[str, list[str]]:
    """Return client -> ids that count, by a plain fold of what is before T."""
    before = [r for r in history.positions if as_of is None or r.timestamp < as_of]
    found: dict[str, list[str]] = {}
    countries = _countries(history.exchanges, as_of)
    for key, record in latest(before).items():
        values = {name: getattr(record, name, None) for name in ("client", "ticker", "exchange")}
        values |= {"position": key, "country": countries.get(record.exchange or "")}
        is_met = condition_of(rule).is_met(values | {"amount": float(record.amount)})
        if record.client is not None and is_met:
            found.setdefault(record.client, []).append(key)
    return {client: sorted(ids, key=position_sort_key) for client, ids in found.items()}


def _countries(records: list[Record], as_of: datetime | None) -> Mapping[str, str | None]:
    before = latest(r for r in records if as_of is None or r.timestamp < as_of)
    first: dict[str, str | None] = {}
    for record in sorted(records, key=lambda record: record.order):
        if record.kind is not RecordKind.REJECTED and record.country is not None:
            first.setdefault(record.key, record.country)
    return first | {key: record.country for key, record in before.items()}


def rejected_row(topic: str, offset: int, number: int = 1, **more: Any) -> dict[str, Any]:
    """Return a row of `rejected_records`, of partition 0."""
    row = {"topic": topic, "partition": 0, "offset": offset, "timestamp": START, "key": b"k"}
    row |= {"value": b"{", "headers": [], "reason": "bad", "snapshot": number}
    return row | more


def held_by(tables: OpenedTables, as_of: datetime | None, rule: Rule = US) -> dict[str, list[str]]:
    """Return who holds what by the as-of SQL."""
    found = tables.rows(holders(rule, as_of))
    return {row["client"]: sorted(row["positions"], key=position_sort_key) for row in found}


def write(settings: Settings, batches: Sequence[Batch]) -> History:
    """Write the tables of those snapshots, one version each, and commit the snapshots."""
    history = history_of(batches)
    stored: dict[str, list[dict[str, Any]]] = {}
    folded: dict[str, int] = {}
    before: dict[str, list[str]] = {}
    changes = list[dict[str, Any]]()
    changed_in = dict[str, int]()
    for number, batch in enumerate(batches, 1):
        read = until(history, number)
        now: dict[str, list[str]] = {client: [] for client in before} | holders_of(read)
        changed = [client for client, ids in now.items() if before.get(client) != ids]
        changed_in |= dict.fromkeys(changed, number)
        changes = [*changes, *(_holder(client, now[client], number) for client in changed)]
        tables = {
            POSITION_EVENTS: [r.row() for r in read.positions],
            CLIENT_EVENTS: [],
            EXCHANGE_EVENTS: [r.row() for r in read.exchanges],
            POSITIONS: [r.row() for r in latest(read.positions).values()],
            EXCHANGES: [r.row() for r in latest(read.exchanges).values()],
            SHARE_HOLDERS: [_holder(one, ids, changed_in[one]) for one, ids in now.items()],
            SHARE_HOLDERS_CHANGES: changes,
        }
        for name in batch.unfolded & stored.keys():
            folded.setdefault(name, number - 1)
            table = next(table for table in tables if table.name == name)
            tables[table] = stored[name]
        folded = {name: at for name, at in folded.items() if name in batch.unfolded}
        stored, before = {t.name: found for t, found in tables.items()}, now
        versions = {t.name: overwrite(settings, t, found) for t, found in tables.items()}
        snapshots.commit(
            installed(settings).tables, replace(snapshot(number, versions), folded=folded)
        )
    return history


def snapshot(number: int, versions: Mapping[str, int]) -> Snapshot:
    """Return a snapshot of those table versions, committed on the day of its number."""
    at = START + timedelta(days=number)
    ends = {"positions": dict.fromkeys(range(SHARDS), 0)}
    return Snapshot(number, at, at, ends, versions, Counts(), Rule("US"), SHARDS, "test", "test")


def overwrite(settings: Settings, table: Table, found: list[dict[str, Any]]) -> int:
    """Replace a table's rows; return its new version."""
    made = storage.writable(installed(settings).tables, table)
    write_deltalake(made, arrow(table, found), mode="overwrite")
    return made.version()


def arrow(table: Table, found: list[dict[str, Any]]) -> pa.Table:
    """Return rows in the table's declared columns; what a row does not have is null."""
    return pa.Table.from_pylist(found, arrow_schema(table))


def until(history: History, number: int) -> History:
    """Return what the snapshots up to that number read."""
    return History(_until(history.positions, number), _until(history.exchanges, number))


def _until(records: list[Record], number: int) -> list[Record]:
    return [record for record in records if record.snapshot <= number]


def _holder(client: str, ids: list[str], number: int) -> dict[str, Any]:
    shard = partition_of(client, SHARDS)
    return {"client": client, "positions": ids, "snapshot": number, "shard": shard}
