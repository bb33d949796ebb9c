"""Tables as compactions leave them, made without Spark, by a clock of their own.

A run writes, commits and merges files as holders/spark/table_writer.py does.
"""

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa

from shardpost.delta import parquet_files, snapshots, table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import rows
from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.delta.table import Table
from shardpost.holders.model.tables import POSITION_EVENTS, POSITIONS, SHARE_HOLDERS, VIEW
from shardpost.holders.restore_tables import restore_table
from shardpost.settings import Settings

# In the future: files were written long before, by the clock of the file system.
START = datetime(2041, 1, 5, tzinfo=UTC)
SHARDS = 2
# {table: its rows, as text}
View = dict[str, list[str]]


@dataclass
class AgedTables:
    """`expected` is what each committed snapshot has, by its number; `now` is the clock."""

    settings: Settings
    random: Random
    now: datetime = START
    expected: dict[int, View] = field(default_factory=dict)
    _runs: Any = field(default_factory=itertools.count)
    _positions: dict[str, str] = field(default_factory=dict)

    def wait(self, **time: float) -> None:
        """Let the clock go on, or jump."""
        self.now += timedelta(**time)

    def compact(self, *, crash: str | None = None) -> None:
        """Compact once; with `crash` up to the files (`files`) or the tables (`tables`) alone."""
        run, last = f"run{next(self._runs)}", snapshots.newest(self.settings)
        number = last.number + 1 if last else 1
        versions = {t.name: restore_table(self.settings, t, last) for t in VIEW}
        known = dict(self._positions)
        keys = self.random.sample([str(n) for n in range(40)], self.random.randint(1, 4))
        known.update({key: f"client{self.random.randint(0, 5)}" for key in keys})
        history = [{"key": k, "client": known[k], "snapshot": number, "seq": number} for k in keys]
        latest = [{"key": k, "client": c, "is_open": True} for k, c in known.items()]
        holders = [{"client": c, "snapshot": number, "shard": 0} for c in {*known.values()}]
        for table, found in (
            (POSITION_EVENTS, history),
            (POSITIONS, latest),
            (SHARE_HOLDERS, holders),
        ):
            version = versions[table.name]
            folder = f"{version + 1:08d}-{run}-0"
            inner = f"{folder}/group=0" if table.grouped_by else folder
            data = pa.Table.from_pylist(found, arrow_schema(table))
            added = [parquet_files.write(self.settings, table, data, f"{inner}/a.parquet")]
            if crash == "files":
                continue
            if table is POSITION_EVENTS:
                merged, old = parquet_files.merge_small(
                    self.settings, table, version, f"{version + 1:08d}-{run}-1"
                )
                added += merged
            else:
                old = [*table_log.sizes(self.settings, table, version)]
            versions[table.name] = table_log.commit(self.settings, table, version, added, old)
        if crash:
            return
        ends = {"positions": {0: number}}
        made = Snapshot(
            *(number, self.now, self.now, ends, versions, Counts(len(known))),
            *("test", run, "US", SHARDS),
        )
        snapshots.commit(self.settings, made)
        self._positions = known
        self.expected[number] = self.view(made)

    def age(self, runs: int) -> None:
        """Compact so often within some hours, and then daily, until only the last of each stays."""
        for _ in range(runs):
            self.compact()
            self.wait(minutes=20)
        for _ in range(3):
            self.wait(days=1)
            self.compact()

    def view(self, snapshot: Snapshot) -> View:
        """Return all rows of a snapshot."""
        return {
            table.name: sorted(map(str, _query(self.settings, table, snapshot.tables[table.name])))
            for table in (POSITION_EVENTS, POSITIONS, SHARE_HOLDERS)
        }

    def require_all_kept(self) -> set[int]:
        """Hold every snapshot that is in the table against what it was; return their numbers."""
        found = snapshots.list_all(self.settings)
        for snapshot in found:
            assert self.view(snapshot) == self.expected[snapshot.number], snapshot.number
        return {snapshot.number for snapshot in found}


def _query(settings: Settings, table: Table, version: int) -> list[dict[str, Any]]:
    return rows(settings, f"SELECT * FROM {table.name}", {table: version})  # noqa: S608
