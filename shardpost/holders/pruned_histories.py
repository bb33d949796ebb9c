"""Histories without what is superseded and old, as an ordinary snapshot; no JVM.

Of the records before a horizon, the latest of each key stays, a tombstone too. So what the history
tells as of the horizon, or of any later time, is what it told before. What stays besides: rejected
records and all retries, since letters and reconciliations ask for them; origins that retries may
name; and records that are not folded into the table of latest records yet.

What can go is found without a lock, since files never change and what is superseded stays so: then,
under the lock of the compaction, only those files are written anew that have such records and are
still there. A large history takes several snapshots, between which the lock is free: what is left
to the next one only keeps too much.

The files that may have records before the horizon are read once. In memory are a byte for each
record, and about RECORDS_AT_ONCE (or all of one key); more wait in temporary files in the home.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardpost.delta import parquet_files, snapshots, storage
from shardpost.delta.rewritten_files import split_by_key
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.folding import commit_rewritten
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import ORDERED_BY, RETRIES_READ_TOGETHER
from shardpost.holders.model.view_tables import INPUTS, InputTables
from shardpost.installation import Installation
from shardpost.locks.locks import after_running
from shardpost.values.topic_names import TopicName

# What is asked of each record.
COLUMNS = (
    *("key", "partition", "offset", "timestamp", "seq", "snapshot", "kind"),
    *RETRIES_READ_TOGETHER,
)
# The latest record of a key first.
_NEWEST_FIRST = [("key", "ascending"), *((name, "descending") for name in ORDERED_BY)]
_OFFSET_BITS = 48

Origins = Collection[tuple[int, int]]


@dataclass(frozen=True)
class Horizon:
    """What is before `at`, of a snapshot up to `folded` and no letter's origin, may go."""

    at: datetime
    folded: int
    origins: Origins = ()

    def candidates(self, rows: pa.Table) -> pa.Table:
        """Return the decodable records before the horizon, of rows with COLUMNS and others."""
        is_decodable = pc.not_equal(rows["kind"], RecordKind.REJECTED.value)
        is_before = pc.less(rows["timestamp"], pa.scalar(self.at, rows["timestamp"].type))
        return rows.filter(pc.and_(is_decodable, is_before))

    def superseded(self, candidates: pa.Table) -> pa.Table:
        """Return those that can go; with a key, all of its candidates are among them."""
        both = candidates.append_column(
            "is_reconciled", pc.equal(candidates["kind"], RecordKind.RECONCILED.value)
        ).append_column("is_original", pc.is_null(candidates["retry_offset"]))
        ordered = both.sort_by(_NEWEST_FIRST)
        keys = pc.dictionary_encode(ordered["key"]).combine_chunks().indices.to_numpy()
        is_later = np.append(False, keys[1:] == keys[:-1])
        is_folded = pc.less_equal(ordered["snapshot"], self.folded)
        places = [(partition << _OFFSET_BITS) | offset for partition, offset in self.origins]
        shifted = pc.shift_left(ordered["partition"].cast(pa.int64()), _OFFSET_BITS)
        own = pc.bit_wise_or(shifted, ordered["offset"])
        is_origin = pc.is_in(own, pa.array(places, pa.int64()))
        may_go = pc.and_(pc.and_(is_folded, ordered["is_original"]), pc.invert(is_origin))
        return ordered.filter(pc.and_(pa.array(is_later), may_go))


RECORDS_AT_ONCE = 1_000_000

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
        """The approximate number of bytes to remove."""
        return self.size * self.rows // max(self.records, 1)


def superseded_records(
    installation: Installation, tables: InputTables, snapshot: Snapshot, horizon: Horizon
) -> dict[str, GoingFile]:
    """Return the superseded records in the history of an input at a snapshot, by path."""
    table = snapshot.located(tables.history)
    version = snapshot.tables[table.name]
    sizes = storage.files_before(installation.tables, table, version, "timestamp", horizon.at)
    paths, records = sorted(sizes), storage.rows(installation.tables, table, version)
    lengths = [records[path] for path in paths]
    going = [np.zeros(length, dtype=bool) for length in lengths]
    parts = -(-sum(lengths) // RECORDS_AT_ONCE)
    candidates = _candidates(installation.tables, table, paths, horizon)
    for part in split_by_key(candidates, "key", parts, installation.files.folder()):
        gone = horizon.superseded(part)
        for number in pc.unique(gone["file"]).to_pylist():
            rows = gone.filter(pc.equal(gone["file"], number))["row"].to_numpy()
            going[number][rows] = True
    return {
        path: GoingFile(np.packbits(bits), int(bits.sum()), len(bits), sizes[path])
        for path, bits in zip(paths, going, strict=True)
        if bits.any()
    }


def _candidates(
    tables: storage.Tables, table: Table, paths: Sequence[str], horizon: Horizon
) -> Iterator[pa.Table]:
    """Yield the candidates of files with their places: `file`, a number, and `row`."""
    for number, path in enumerate(paths):
        first = 0
        for part in parquet_files.parts(tables, table, path, COLUMNS):
            rows = np.arange(first, first + part.num_rows)
            first += part.num_rows
            file = pa.array(np.full(part.num_rows, number))
            placed = part.append_column("row", pa.array(rows)).append_column("file", file)
            candidates = horizon.candidates(placed)
            if candidates.num_rows:
                yield candidates


# Exchanges stay: they are few, and their first records are asked for at any time.
PRUNED: tuple[TopicName, ...] = ("positions", "clients")
# Files of so many bytes are written anew in one snapshot, while compactions wait.
BYTES_AT_ONCE = 1_000_000_000
# Who waits for a lock asks for it more often than that.
PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Pruning:
    """What is removed before a time, by table and path, as of the snapshot `of`."""

    of: Snapshot
    at: datetime
    files: Mapping[Table, Mapping[str, GoingFile]] = field(default_factory=dict)

    @property
    def rows(self) -> dict[str, int]:
        """The number of rows to remove, by table."""
        counts = {
            t.name: sum(file.rows for file in files.values()) for t, files in self.files.items()
        }
        return {name: count for name, count in counts.items() if count}

    @property
    def bytes(self) -> int:
        """The approximate number of bytes to remove."""
        return sum(file.bytes for files in self.files.values() for file in files.values())

    def in_steps(self) -> "Iterator[Pruning]":
        """Yield it in parts, of BYTES_AT_ONCE of files or of one file."""
        part: dict[Table, dict[str, GoingFile]] = {}
        size = 0
        for table, files in self.files.items():
            for path, file in files.items():
                if part and size + file.size > BYTES_AT_ONCE:
                    yield replace(self, files=part)
                    part, size = {}, 0
                part.setdefault(table, {})[path] = file
                size += file.size
        if part:
            yield replace(self, files=part)


def find_superseded(
    installation: Installation,
    snapshot: Snapshot,
    at: datetime,
    origins: Mapping[TopicName, Origins],
) -> Pruning:
    """Return what a snapshot can lose; `origins` are those of letters: (partition, offset)."""
    files = {}
    for name in PRUNED:
        tables = INPUTS[name]
        if tables.history.name in snapshot.tables:
            folded = snapshot.folded_up_to(tables.latest.name)
            horizon = Horizon(at, folded, origins.get(name, ()))
            files[tables.history] = superseded_records(installation, tables, snapshot, horizon)
    return Pruning(snapshot, at, files)


def prune(installation: Installation, pruning: Pruning, now: datetime) -> Snapshot | None:
    """Commit snapshots without what is removed; return the last, None if nothing is any more.

    Each under the lock of the compaction, after any that is running: LockedError if that takes
    longer than `lock_wait`. What was committed before that stays so.
    """
    made = None
    for number, some in enumerate(pruning.in_steps()):
        if number:
            pause()
        with after_running(installation.files, COMPACT_POSITIONS.name):
            last = snapshots.current(installation.tables)
            if not some.of.is_in_force(last):  # what is folded, and so may go, is another thing
                raise ShardpostError(
                    f"tables were swapped since snapshot {some.of.number}, from which the removal"
                    " was planned: the next maintenance plans again"
                )
            rewrites = {}
            for table, files in some.files.items():
                version = last.tables[table.name]
                there = storage.sizes(installation.tables, last.located(table), version)
                rests = {path: _Rest(one.going) for path, one in files.items() if path in there}
                if rests:
                    rewrites[table] = rests
            if rewrites:
                # A wrong clock never takes it back.
                until = max(filter(None, (last.history_from, some.at)))
                made = commit_rewritten(
                    installation.tables, last, rewrites, now, history_from=until
                )
    return made


def pause() -> None:
    """Leave the lock to a compaction that waits for it."""
    time.sleep(PAUSE_SECONDS)


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
