"""Histories without what is superseded and old, as an ordinary snapshot; no JVM.

What can go is found without a lock, since files never change and what is superseded stays so: then,
under the lock of the compaction, only those files are written anew that have such records and are
still there. In memory are RECORDS_AT_ONCE records at a time (or all of one key), and a byte for
each record of the history.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardpost.delta import parquet_files, snapshots, table_log
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.holders.job import COMPACT_POSITIONS
from shardpost.holders.model.pruning import COLUMNS, Horizon, Origins
from shardpost.holders.model.tables import INPUTS, InputTables
from shardpost.holders.rewritten_snapshot import commit_rewritten
from shardpost.locks import exclusive
from shardpost.settings import Settings
from shardpost.topic_names import TopicName

# Exchanges stay: they are few, and their first records are asked for at any time.
PRUNED: tuple[TopicName, ...] = ("positions", "clients")
RECORDS_AT_ONCE = 1_000_000
SAMPLE = 10_000

Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class GoingFile:
    """A file that loses records: which (packed bits, by row), how many, and its size in bytes."""

    going: Bits
    rows: int
    records: int
    size: int

    @property
    def bytes(self) -> int:
        """About so many bytes go."""
        return self.size * self.rows // max(self.records, 1)


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
            found[tables.history] = _going(settings, tables, snapshot, horizon)
    return Pruning(at, found)


def prune(settings: Settings, pruning: Pruning, now: datetime) -> Snapshot | None:
    """Commit a snapshot without what goes; None if nothing does any more.

    Under the lock of the compaction, after any that is running: `lock_wait` at most.
    """
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


def _going(
    settings: Settings, tables: InputTables, snapshot: Snapshot, horizon: Horizon
) -> dict[str, GoingFile]:
    table = snapshot.located(tables.history)
    sizes = table_log.sizes(settings, table, snapshot.tables[table.name])
    paths = sorted(sizes)
    lengths = [_length(settings, table, path) for path in paths]
    going = [np.zeros(length, dtype=bool) for length in lengths]
    for low, high in _ranges(settings, table, paths, sum(lengths)):
        parts = [
            found
            for number, path in enumerate(paths)
            for found in _candidates(settings, table, path, number, horizon, low, high)
        ]
        if not parts:
            continue
        gone = horizon.superseded(pa.concat_tables(parts))
        for number in pc.unique(gone["file"]).to_pylist():
            rows = gone.filter(pc.equal(gone["file"], number))["row"].to_numpy()
            going[number][rows] = True
    return {
        path: GoingFile(np.packbits(bits), int(bits.sum()), len(bits), sizes[path])
        for path, bits in zip(paths, going, strict=True)
        if bits.any()
    }


def _length(settings: Settings, table: Table, path: str) -> int:
    return sum(p.num_rows for p in parquet_files.parts(settings, table, path, ["partition"]))


def _candidates(
    settings: Settings,
    table: Table,
    path: str,
    number: int,
    horizon: Horizon,
    low: str | None,
    high: str | None,
) -> Iterator[pa.Table]:
    """Yield the candidates of a file with keys from `low` up to `high`, with their places."""
    first = 0
    for part in parquet_files.parts(settings, table, path, COLUMNS):
        rows = np.arange(first, first + part.num_rows)
        first += part.num_rows
        part = part.append_column("row", pa.array(rows)).append_column(
            "file", pa.array(np.full(part.num_rows, number))
        )
        part = horizon.candidates(part)
        if low is not None:
            part = part.filter(pc.greater_equal(part["key"], low))
        if high is not None:
            part = part.filter(pc.less(part["key"], high))
        if part.num_rows:
            yield part


def _ranges(
    settings: Settings, table: Table, paths: list[str], records: int
) -> list[tuple[str | None, str | None]]:
    """Return ranges of keys with about as many records each as fit; all of a key are in one."""
    count = -(-records // RECORDS_AT_ONCE)
    if count <= 1:
        return [(None, None)]
    chosen = random.Random(0)  # noqa: S311 - a sample
    sample: list[str] = []
    for path in paths:
        for part in parquet_files.parts(settings, table, path, ["key"]):
            size = min(part.num_rows, -(-SAMPLE * part.num_rows // records))
            rows = sorted(chosen.sample(range(part.num_rows), size))
            sample += filter(None, part["key"].take(pa.array(rows, pa.int64())).to_pylist())
    sample.sort()
    bounds = sorted({sample[len(sample) * n // count] for n in range(1, count)} if sample else ())
    return [*zip([None, *bounds], [*bounds, None], strict=True)]
