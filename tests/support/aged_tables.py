"""Tables as compactions leave them, made without Spark, by a clock of their own.

A run writes, commits and merges files as holders/spark/compaction_run.py does.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any

from shardpost.delta import parquet_files, snapshots, storage, table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import OpenedTables, at_snapshot
from shardpost.delta.snapshot import Counts, Snapshot
from shardpost.delta.table import Table
from shardpost.holders.folding import restore_table
from shardpost.holders.model.view_tables import (
    EXCHANGE_EVENTS,
    EXCHANGES,
    POSITION_EVENTS,
    POSITIONS,
    SHARE_HOLDERS,
    VIEW,
)
from shardpost.holders.model.who_holds import RELATIONS
from shardpost.maintenance.maintain import maintain, prune_old
from shardpost.settings import Settings
from shardpost.values.holding_rule import Rule
from tests.support import histories
from tests.support.histories import History, Record, arrow, close, country_of, put
from tests.support.how_far import drawn
from tests.support.installed import installed
from tests.support.object_store import folder_of

# In the future: files were written long before, by the clock of the file system.
START = datetime(2041, 1, 5, tzinfo=UTC)
SHARDS = 2
EXCHANGE = replace(country_of("NASDAQ", "US"), seq=0)
VIEWED = (POSITION_EVENTS, POSITIONS, SHARE_HOLDERS)
# {table: its rows, as text}
View = dict[str, list[str]]


@dataclass
class AgedTables:
    """`expected` is what each committed snapshot has, by its number; `now` is the clock.

    `fold_share` is how many of the compactions fold `positions`. What a compaction adds to the
    snapshot before it is told by its records, not by reading the tables.
    """

    settings: Settings
    random: Random
    now: datetime = START
    fold_share: float = 1
    expected: dict[int, View] = field(default_factory=dict)
    _runs: Any = field(default_factory=itertools.count)
    # {(path of a table, version that one file is all of): that file}
    _files: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    _records: list[Record] = field(default_factory=list)
    _is_to_be_restored: bool = True

    def wait(self, **time: float) -> None:
        """Let the clock go on, or jump."""
        self.now += timedelta(**time)

    def compact(self, *, crash: str | None = None) -> None:
        """Compact once; with `crash` up to the files (`files`) or the tables (`tables`) alone."""
        run, last = f"run{next(self._runs)}", snapshots.newest(installed(self.settings).tables)
        number = last.number + 1 if last else 1
        versions = self._restored(last)
        self._is_to_be_restored = True
        new = self._read(number)
        read = [*self._records, *new]
        latest = histories.latest(read).values()
        clients = {record.client for record in read if record.client}
        folded = dict(last.folded) if last else {}
        tables: dict[Table, list[dict[str, Any]]] = {
            POSITION_EVENTS: [record.row() for record in new],
            SHARE_HOLDERS: [{"client": c, "snapshot": number, "shard": 0} for c in clients],
        }
        if last is None:
            tables |= {EXCHANGE_EVENTS: [EXCHANGE.row()], EXCHANGES: [EXCHANGE.row()]}
        if last is None or self.random.random() < self.fold_share:
            tables[POSITIONS] = [record.row() for record in latest]
            folded.pop(POSITIONS.name, None)
        else:
            folded.setdefault(POSITIONS.name, last.number)
        for declared, found in tables.items():
            table = last.located(declared) if last else declared
            version = versions[table.name]
            folder = f"{version + 1:08d}-{run}-0"
            inner = f"{folder}/group=0" if table.grouped_by else folder
            path = f"{inner}/a.parquet"
            added = [
                parquet_files.write(
                    installed(self.settings).tables, table, arrow(table, found), path
                )
            ]
            if crash == "files":
                continue
            if declared is POSITION_EVENTS:
                merged, old = parquet_files.merge_small(
                    installed(self.settings).tables, table, version, f"{version + 1:08d}-{run}-1"
                )
                added += merged
            else:
                known = self._files.get((table.path, version))
                old = known or [*storage.sizes(installed(self.settings).tables, table, version)]
            versions[table.name] = table_log.commit(
                installed(self.settings).tables, table, version, added, old
            )
            if declared is not POSITION_EVENTS:
                self._files[table.path, versions[table.name]] = [path]
        if crash:
            return
        ends = {"positions": {0: number}}
        made = Snapshot(
            *(number, self.now, self.now, ends, versions, Counts(len(latest))),
            *(Rule("US"), SHARDS, "test", run),
            folded=folded,
            history_from=last.history_from if last else None,
            folders=last.folders if last else {},
            rebuilt_in=last.rebuilt_in if last else None,
        )
        self._records = read  # before anybody reads the snapshot
        snapshots.commit(installed(self.settings).tables, made)
        self.expected[number] = self._with(last, tables)
        self._is_to_be_restored = False

    def prune(self) -> bool:
        """Prune the history by SHARDPOST_HISTORY_DAYS; tell whether that made a snapshot."""
        if not prune_old(installed(self.settings), self.now).rows:
            return False
        made = snapshots.current(installed(self.settings).tables)
        self.expected[made.number] = self.view(made)
        return True

    def age(self, runs: int) -> None:
        """Compact so often within some hours, and then daily, until only the last of each stays."""
        for _ in range(runs):
            self.compact()
            self.wait(minutes=20)
        for _ in range(3):
            self.wait(days=1)
            self.compact()

    def age_and_die_thinning(self) -> None:
        """Leave files that no row names any more; then age, so that there are rows to thin."""
        self.age(3)
        snapshots.drop(
            installed(self.settings).tables,
            maintain(installed(self.settings), self.now, dry_run=True).dropped,
        )
        self.age(3)

    def view(self, snapshot: Snapshot) -> View:
        """Return all rows of a snapshot."""
        located = [snapshot.located(table) for table in VIEWED]
        versions = {table: snapshot.tables[table.name] for table in located}
        opened = OpenedTables(installed(self.settings).tables, versions)
        return {
            table.name: sorted(map(str, opened.rows(f"SELECT * FROM {table.name}")))  # noqa: S608
            for table in located
        }

    def require_all_kept(self) -> set[int]:
        """Hold snapshots that are in the table against what they were; return all their numbers.

        The newest, and some others; with `--all` each.
        """
        found = {
            snapshot.number: snapshot
            for snapshot in snapshots.list_all(installed(self.settings).tables)
        }
        numbers = sorted(found, reverse=True)
        for number in [*numbers[:1], *drawn(numbers[1:], 3)]:
            assert self.view(found[number]) == self.expected[number], number
        return {*found}

    def instants(self, snapshot: Snapshot) -> list[datetime | None]:
        """Return the times at which its answer may change, from `history_from` on; None is now."""
        least = snapshot.history_from or START - timedelta(days=9999)
        found = {record.timestamp for record in self._known(snapshot)}
        found |= {max(found) + timedelta(milliseconds=1), least}
        return [None, *sorted(at for at in found if at >= least)]

    def require_answers(self, snapshot: Snapshot, instants: Iterable[datetime | None]) -> None:
        """Hold who holds what as of each of these times against the plain fold of all records."""
        history = History(self._known(snapshot), [EXCHANGE])
        tables = OpenedTables(installed(self.settings).tables, at_snapshot(snapshot, *RELATIONS))
        for as_of in instants:
            held = histories.held_by(tables, as_of, snapshot.rule)
            assert held == histories.holders_of(history, as_of), (snapshot.number, as_of)

    def _restored(self, last: Snapshot | None) -> dict[str, int]:
        """Return the versions of all tables, without what a run left that crashed."""
        if last is None or self._is_to_be_restored:
            return {
                table.name: restore_table(installed(self.settings).tables, table, last)
                for table in VIEW
            }
        return {table.name: last.tables[table.name] for table in VIEW}

    def _with(self, last: Snapshot | None, tables: dict[Table, list[dict[str, Any]]]) -> View:
        """Return what a snapshot has after the last one: these rows, beside the history it had."""
        found = dict(self.expected[last.number]) if last else {table.name: [] for table in VIEWED}
        for table in VIEWED:
            if table in tables:
                before = found[table.name] if table is POSITION_EVENTS else []
                found[table.name] = sorted([*before, *_as_text(table, tables[table])])
        return found

    def _known(self, snapshot: Snapshot) -> list[Record]:
        return [record for record in self._records if record.snapshot <= snapshot.number]

    def _read(self, number: int) -> list[Record]:
        """Return new records, of which one may be late."""
        hour = (self.now - histories.START) // timedelta(hours=1)
        keys = self.random.sample(range(12), self.random.randint(1, 4))
        late = self.random.choice([0, 0, 0, 30])
        made = []
        for place, key in enumerate(keys, len(self._records)):
            client = self.random.choice([None, *(f"client{n}" for n in range(6))])
            at = hour - (late if key == keys[0] else 0)
            record = put(str(key), client, "NASDAQ", at) if client else close(str(key), at)
            made.append(replace(record, seq=place, snapshot=number))
        return made


def data_files(settings: Settings) -> set[Path]:
    """Return the data files that the tables have, whatever version they are of."""
    return {
        path
        for table in VIEW
        for path in folder_of(settings, table).rglob("*.parquet")
        if "_delta_log" not in path.parts
    }


def needed_files(settings: Settings) -> set[Path]:
    """Return the data files that snapshots name."""
    versions = {
        (table, snapshot.tables[table.name])
        for snapshot in snapshots.list_all(installed(settings).tables)
        for table in VIEW
    }
    return {
        folder_of(settings, table) / path
        for table, version in versions
        for path in storage.sizes(installed(settings).tables, table, version)
    }


def _as_text(table: Table, found: list[dict[str, Any]]) -> list[str]:
    """Return rows as they are read, as text."""
    names = arrow_schema(table).names
    plain = [{k: str(v) if isinstance(v, StrEnum) else v for k, v in row.items()} for row in found]
    return [str({name: row.get(name) for name in names}) for row in plain]
