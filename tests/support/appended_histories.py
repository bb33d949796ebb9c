"""Histories as compactions append them, snapshot by snapshot; no JVM.

Between two of them others may commit snapshots, so that a batch has the number that is free.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardpost.delta import parquet_files, snapshots, storage, table_log
from shardpost.delta.query import OpenedTables, at_snapshot
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.holders.folding import restore_table
from shardpost.holders.model.view_tables import (
    EXCHANGE_EVENTS,
    EXCHANGES,
    POSITION_EVENTS,
    POSITIONS,
    VIEW,
)
from shardpost.holders.model.who_holds import RELATIONS
from shardpost.settings import Settings
from tests.support.histories import Batch, History, Record, arrow, history_of, latest, snapshot
from tests.support.installed import installed


@dataclass
class AppendedHistories:
    """What was read so far, in batches; `numbers` are those of their snapshots."""

    settings: Settings
    batches: list[Batch] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    _runs: Any = field(default_factory=itertools.count)

    @property
    def history(self) -> History:
        """All records, each with the snapshot that read it."""
        found = history_of(self.batches)
        return History(self._numbered(found.positions), self._numbered(found.exchanges))

    def compact(self, batch: Batch) -> Snapshot:
        """Append a batch to the histories, fold what it does not leave, and commit a snapshot."""
        last = snapshots.newest(installed(self.settings).tables)
        number = last.number + 1 if last else 1
        self.batches.append(batch)
        self.numbers.append(number)
        versions = {
            table.name: restore_table(installed(self.settings).tables, table, last)
            for table in VIEW
        }
        folded = dict(last.folded) if last else {}
        both = (
            (POSITION_EVENTS, POSITIONS, self.history.positions),
            (EXCHANGE_EVENTS, EXCHANGES, self.history.exchanges),
        )
        for history, table, records in both:
            new = [record.row() for record in records if record.snapshot == number]
            self._put(versions, history, new)
            if table.name in batch.unfolded and last:
                folded.setdefault(table.name, last.number)
            else:
                folded.pop(table.name, None)
                known = [record.row() for record in latest(records).values()]
                self._put(versions, table, known, replacing=True)
        made = replace(snapshot(number, versions), folded=folded)
        if last:
            made = replace(made, history_from=last.history_from, erased_in=last.erased_in)
        snapshots.commit(installed(self.settings).tables, made)
        return made

    def opened(self) -> OpenedTables:
        """Open the tables at the newest snapshot."""
        newest = snapshots.current(installed(self.settings).tables)
        return OpenedTables(installed(self.settings).tables, at_snapshot(newest, *RELATIONS))

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Run a query at the newest snapshot."""
        return self.opened().rows(sql)

    def _numbered(self, records: Sequence[Record]) -> list[Record]:
        return [replace(one, snapshot=self.numbers[one.snapshot - 1]) for one in records]

    def _put(
        self,
        versions: dict[str, int],
        table: Table,
        found: list[dict[str, Any]],
        *,
        replacing: bool = False,
    ) -> None:
        version = versions[table.name]
        folder = f"{version + 1:08d}-run{next(self._runs)}"
        old = storage.sizes(installed(self.settings).tables, table, version) if replacing else ()
        added = []
        if found:
            data = arrow(table, found)
            added.append(
                parquet_files.write(
                    installed(self.settings).tables, table, data, f"{folder}/a.parquet"
                )
            )
        versions[table.name] = table_log.commit(
            installed(self.settings).tables, table, version, added, old
        )
