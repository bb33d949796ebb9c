"""The records of a history that can go, as marks in its files; no JVM.

The files that may have records before the horizon are read once. In memory are a byte for each of
their records, and about RECORDS_AT_ONCE of these at a time (or all of one key); more than that wait
in temporary files in the home.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardpost.delta import parquet_files, table_log
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.split_by_key import split_by_key
from shardpost.delta.table import Table
from shardpost.holders.model.pruning import COLUMNS, Horizon
from shardpost.holders.model.tables import InputTables
from shardpost.settings import Settings

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
        """About so many bytes go."""
        return self.size * self.rows // max(self.records, 1)


def superseded_records(
    settings: Settings, tables: InputTables, snapshot: Snapshot, horizon: Horizon
) -> dict[str, GoingFile]:
    """Return what goes of the history of an input, by path, as a snapshot has it."""
    table = snapshot.located(tables.history)
    version = snapshot.tables[table.name]
    sizes = table_log.files_before(settings, table, version, "timestamp", horizon.at)
    paths = sorted(sizes)
    lengths = [parquet_files.length(settings, table, path) for path in paths]
    going = [np.zeros(length, dtype=bool) for length in lengths]
    parts = -(-sum(lengths) // RECORDS_AT_ONCE)
    candidates = _candidates(settings, table, paths, horizon)
    for part in split_by_key(candidates, "key", parts, settings.home):
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
    settings: Settings, table: Table, paths: Sequence[str], horizon: Horizon
) -> Iterator[pa.Table]:
    """Yield the candidates of files with their places: `file`, a number, and `row`."""
    for number, path in enumerate(paths):
        first = 0
        for part in parquet_files.parts(settings, table, path, COLUMNS):
            rows = np.arange(first, first + part.num_rows)
            first += part.num_rows
            file = pa.array(np.full(part.num_rows, number))
            placed = part.append_column("row", pa.array(rows)).append_column("file", file)
            found = horizon.candidates(placed)
            if found.num_rows:
                yield found
