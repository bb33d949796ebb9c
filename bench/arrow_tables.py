"""The tables under one commit point, written as a tiny compaction does, without Spark.

All but the rows' way into files is the product's own: which files a run adds, merges and removes,
versions, statistics, layers and when they are folded in.
"""

import uuid
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from shardpost.delta import parquet_files
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import query
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import path_of
from shardpost.delta.table import LayeredVersion, Table
from shardpost.holders.model.view_tables import LAYERED
from shardpost.holders.spark.compaction_run import TableWriter
from shardpost.settings import Settings
from shardpost.spark.delta_files import Written
from tests.support.installed import installed

# How many files Spark makes on two cores of the records of a run, and of a fold.
FILES, FOLDED_FILES = 2, 3
# Hadoop's local file system writes a checksum of every so many bytes beside each file.
CHECKED_BYTES = 512
CHECKSUM_MAGIC = b"crc\0"


class ArrowTables(TableWriter):
    """A `TableWriter` whose rows are Arrow tables."""

    def __init__(self, settings: Settings, last: Snapshot) -> None:
        no_session = cast("SparkSession", None)
        super().__init__(no_session, installed(settings).tables, dict(last.tables), last)

    def read(self, table: Table) -> Any:
        """Return a table as this run sees it."""
        versions = {self.located(table): self.at(table)}
        names = arrow_schema(table).names
        found = query(self.where, f"SELECT * FROM {table.name}", versions)  # noqa: S608
        return found.select(names).cast(arrow_schema(table))

    def layer_runs(self) -> int:
        """Return how many runs the oldest layer is of."""
        versions = (self.at(table) for table in LAYERED)
        folded = [at.folded for at in versions if isinstance(at, LayeredVersion)]
        return self.number - min(folded, default=self.number)

    def _write(self, table: Table, rows: Any, coalesce: bool) -> Written:
        """Write rows into files laid out as Spark's are."""
        table, folder = self.located(table), self._new_folder(table)
        files, root = [], Path(path_of(self.where, table))
        for name, part in _parts(table, rows, FILES if coalesce else FOLDED_FILES):
            path = f"{folder}/{name}-{uuid.uuid4()}-c000.snappy.parquet"
            files.append(parquet_files.write(self.where, table, part, path))
            _write_checksum(root / path)
        return Written(table, files)


def _parts(table: Table, rows: pa.Table, count: int) -> Iterator[tuple[str, pa.Table]]:
    """Yield (name, rows) of each file of a write: one for each group, or `count` of them."""
    if table.grouped_by:
        groups = rows[table.grouped_by]
        for group in sorted(set(groups.to_pylist())):
            yield f"group={group}/part-00000", rows.filter(pc.equal(groups, group))
        return
    bounds = [rows.num_rows * number // count for number in range(count + 1)]
    for number, (first, until) in enumerate(pairwise(bounds)):
        if first < until:
            yield f"part-{number:05d}", rows.slice(first, until - first)


def _write_checksum(path: Path) -> None:
    """Write the checksum of a file as Hadoop does, which compares it when it reads the file."""
    found = path.read_bytes()
    parts = (found[at : at + CHECKED_BYTES] for at in range(0, len(found), CHECKED_BYTES))
    sums = b"".join(zlib.crc32(part).to_bytes(4) for part in parts)
    header = CHECKSUM_MAGIC + CHECKED_BYTES.to_bytes(4)
    path.with_name(f".{path.name}.crc").write_bytes(header + sums)
