"""Delta tables and snapshots written by hand, as the weekly e-mail reads them."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.holders.model.view_tables import (
    CLIENT_EVENTS,
    CLIENTS,
    EXCHANGE_EVENTS,
    EXCHANGES,
    POSITION_EVENTS,
    POSITIONS,
)
from shardpost.settings import Settings
from shardpost.values.holding_rule import Rule
from shardpost.weekly_email.delivery_status import WeekStatus, audience_of
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import ShardStatus
from shardpost.weekly_email.week_state import WeekState
from tests.support.histories import overwrite
from tests.support.installed import installed

LONG_AGO = datetime.fromisoformat("2026-01-01T00:00:00+00:00")


@dataclass
class World:
    """What is known: every change goes into the tables by `commit`, as one snapshot more."""

    settings: Settings
    positions: dict[str, dict[str, Any]] = field(default_factory=dict)
    clients: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    number: int = 0

    def position(
        self,
        key: str,
        client: str,
        *,
        exchange: str = "NASDAQ",
        at: datetime = LONG_AGO,
        **more: Any,
    ) -> None:
        value = {"client": client, "ticker": "AAPL", "amount": "100", "exchange": exchange, **more}
        self._change(key, at, {"is_open": True, **value})

    def close(self, key: str, *, at: datetime) -> None:
        self._change(key, at, {"is_open": False})

    def client(self, key: str, **more: Any) -> None:
        contact = {"name": key, "email": f"{key}@x.example", "subscribed": True}
        self.clients[key] = {**_record(key, LONG_AGO, 1), "is_open": True, **contact, **more}

    def commit(self, *, looked_at: datetime, committed_at: datetime | None = None) -> Snapshot:
        """Write all tables and the snapshot's row."""
        self.number += 1
        exchanges = [
            {**_record(key, LONG_AGO, 1), "country": country}
            for key, country in (("NASDAQ", "US"), ("NYSE", "US"), ("LON", "GB"), ("PAR", "FR"))
        ]
        tables = {
            POSITIONS: list(self.positions.values()),
            POSITION_EVENTS: self.events,
            CLIENTS: list(self.clients.values()),
            CLIENT_EVENTS: [{**row, "kind": "upsert"} for row in self.clients.values()],
            EXCHANGES: [{**row, "is_open": True} for row in exchanges],
            EXCHANGE_EVENTS: [{**row, "kind": "upsert"} for row in exchanges],
        }
        versions = {
            table.name: overwrite(self.settings, table, rows) for table, rows in tables.items()
        }
        at = committed_at or looked_at
        made = Snapshot(
            *(self.number, at, looked_at, {}, versions, Counts()),
            *(self.settings.rule, self.settings.partitions, "test", "test"),
        )
        snapshots.commit(installed(self.settings).tables, made)
        return made

    def swap(self, country: str) -> None:
        """Put tables in use by which that country's stock counts, as the swap of a rebuild does."""
        last = snapshots.current(installed(self.settings).tables)
        self.number = number = last.number + 1
        changed = replace(last, number=number, rule=Rule(country), rebuilt_in=number)
        changed = replace(changed, set_country=self.settings.country)
        snapshots.commit(installed(self.settings).tables, changed)

    def _change(self, key: str, at: datetime, columns: dict[str, Any]) -> None:
        read_by = {"snapshot": self.number + 1}
        row = {**_record(key, at, len(self.events) + 1), **read_by, **columns}
        self.positions[key] = row
        kind = "upsert" if columns["is_open"] else "tombstone"
        self.events.append({**row, "kind": kind})


def _record(key: str, at: datetime, seq: int) -> dict[str, Any]:
    return {"key": key, "partition": 0, "offset": seq, "timestamp": at, "seq": seq, "snapshot": 1}


def counts_by_shard(settings: Settings, week: IsoWeek, now: datetime) -> list[ShardStatus]:
    """Return the counts of each shard as `emails` has them."""
    state = WeekState(installed(settings), week)
    status = WeekStatus(state, audience_of(state, now), settings.partitions)
    return status.by_shard()
