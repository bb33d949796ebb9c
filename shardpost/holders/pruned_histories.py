"""Histories without what is superseded and old, as an ordinary snapshot; no JVM.

What can go is found without a lock, since files never change and what is superseded stays so
(superseded_records.py): then, under the lock of the compaction, only those files are written anew
that have such records and are still there. A large history takes several snapshots, between which
the lock is free: what is left to the next one only keeps too much.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardpost.delta import snapshots, table_log
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.holders.job import COMPACT_POSITIONS
from shardpost.holders.model.pruning import Horizon, Origins
from shardpost.holders.model.tables import INPUTS
from shardpost.holders.rewritten_snapshot import commit_rewritten
from shardpost.holders.superseded_records import Bits, GoingFile, superseded_records
from shardpost.locks import exclusive
from shardpost.settings import Settings
from shardpost.topic_names import TopicName

# Exchanges stay: they are few, and their first records are asked for at any time.
PRUNED: tuple[TopicName, ...] = ("positions", "clients")
# Files of so many bytes are written anew in one snapshot, while compactions wait.
BYTES_AT_ONCE = 1_000_000_000
# Who waits for a lock asks for it more often than that.
PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Pruning:
    """What goes before a time, by table and path."""

    at: datetime
    files: Mapping[Table, Mapping[str, GoingFile]] = field(default_factory=dict)

    @property
    def rows(self) -> dict[str, int]:
        """How many rows go, by table."""
        counts = {t.name: sum(one.rows for one in files.values()) for t, files in self._items()}
        return {name: count for name, count in counts.items() if count}

    @property
    def bytes(self) -> int:
        """About so many bytes go."""
        return sum(one.bytes for _, files in self._items() for one in files.values())

    def in_steps(self) -> "Iterator[Pruning]":
        """Yield it in parts, of BYTES_AT_ONCE of files or of one file."""
        part: dict[Table, dict[str, GoingFile]] = {}
        size = 0
        for table, files in self._items():
            for path, file in files.items():
                if part and size + file.size > BYTES_AT_ONCE:
                    yield replace(self, files=part)
                    part, size = {}, 0
                part.setdefault(table, {})[path] = file
                size += file.size
        if part:
            yield replace(self, files=part)

    def _items(self) -> Iterator[tuple[Table, Mapping[str, GoingFile]]]:
        yield from self.files.items()


def find(
    settings: Settings, snapshot: Snapshot, at: datetime, origins: Mapping[TopicName, Origins]
) -> Pruning:
    """Return what goes of a snapshot; `origins` are those of letters, (partition, offset)."""
    found = {}
    for name in PRUNED:
        tables = INPUTS[name]
        if tables.history.name in snapshot.tables:
            folded = snapshot.folded_up_to(tables.latest.name)
            horizon = Horizon(at, folded, origins.get(name, ()))
            found[tables.history] = superseded_records(settings, tables, snapshot, horizon)
    return Pruning(at, found)


def prune(settings: Settings, pruning: Pruning, now: datetime) -> Snapshot | None:
    """Commit snapshots without what goes, and return the last; None if nothing does any more.

    Each under the lock of the compaction, after any that is running: LockedError if that takes
    longer than `lock_wait`. What was committed before that stays so.
    """
    made = None
    for number, some in enumerate(pruning.in_steps()):
        if number:
            pause()
        made = _prune(settings, some, now) or made
    return made


def pause() -> None:
    """Leave the lock to a compaction that waits for it."""
    time.sleep(PAUSE_SECONDS)


def _prune(settings: Settings, pruning: Pruning, now: datetime) -> Snapshot | None:
    name = COMPACT_POSITIONS.name
    with exclusive(settings, name, name, wait=settings.lock_wait):
        last = snapshots.current(settings)
        rewrites = {}
        for table, files in pruning.files.items():
            there = table_log.sizes(settings, last.located(table), last.tables[table.name])
            rewrites[table] = {
                path: _Rest(one.going) for path, one in files.items() if path in there
            }
        rewrites = {table: files for table, files in rewrites.items() if files}
        if not rewrites:
            return None
        # A wrong clock never takes it back.
        history_from = max(filter(None, (last.history_from, pruning.at)))
        return commit_rewritten(settings, last, rewrites, now, history_from=history_from)


class _Rest:
    """What stays of the rows of a file, part by part in their order."""

    def __init__(self, going: Bits) -> None:
        self._going, self._row = going, 0

    def __call__(self, rows: pa.Table) -> pa.Table:
        first, self._row = self._row, self._row + rows.num_rows
        return rows.filter(pa.array(~self._bits[first : self._row]))

    @cached_property
    def _bits(self) -> npt.NDArray[np.bool_]:
        return np.unpackbits(self._going).astype(bool)
