"""Rewrite files of a table without the contact of a client, or without superseded records.

Of who is erased, a row stays, with its key and its coordinates; the columns of `Table.contacts`
are emptied. Rows that are looked at by key come in parts of which each fits into memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from shardpost.delta import parquet_files, storage, table_log
from shardpost.delta.storage import Tables
from shardpost.delta.table import Table
from shardpost.logs import step


def commit_files(
    tables: Tables, table: Table, version: int, files: Mapping[str, parquet_files.Change], run: str
) -> int:
    """Write files of a version anew, {path: how its rows change}; return the version after it.

    With it comes a checkpoint, by which the maintenance can remove the log before it: that has
    bounds of what is gone. What an interrupted run left has another name than that of this `run`.
    VersionExistsError if another writer was first.
    """
    folder = f"{version + 1:08d}-{run}"
    step(f"write {table.path}")
    made = [
        parquet_files.rewrite(tables, table, path, f"{folder}/{number}.parquet", change)
        for number, (path, change) in enumerate(files.items())
    ]
    step(f"commit {table.path}")
    version = table_log.commit(tables, table, version, filter(None, made), files)
    step(f"checkpoint {table.path}")
    storage.opened(tables, table, version).create_checkpoint()
    return version


# Why a record was rejected, or a letter failed, may quote it. There was a reason: this is left.
ERASED = "erased"
_REASONS = ("reason", "error")

# Rows in, a mask of those that are a client's out.
Mask = Callable[[pa.Table], pa.Array]


def files_with_contact(
    tables: Tables, table: Table, version: int, key: tuple[str, str | bytes], own: Mask
) -> dict[str, int]:
    """Return {path: rows} of the files that have the contact of a client.

    `key` is the column that identifies the client, and its value there; of the rows that have it,
    `own` are the client's. Each file is read, whatever its bounds say.
    """
    column, value = key
    paths = storage.sizes(tables, table, version)
    counts = {path: _count(tables, table, path, column, value, own) for path in paths}
    return {path: count for path, count in counts.items() if count}


def _count(
    tables: Tables, table: Table, path: str, column: str, value: str | bytes, own: Mask
) -> int:
    """Count the rows of a file; all columns are read only where the client is found."""
    keys = parquet_files.parts(tables, table, path, [column])
    if not any(pc.any(pc.equal(part[column], value)).as_py() for part in keys):
        return 0
    parts = parquet_files.parts(tables, table, path)
    return sum(int(pc.sum(_with_contact(table, own, part)).as_py() or 0) for part in parts)


def _with_contact(table: Table, own: Mask, rows: pa.Table) -> pa.Array:
    """Return the mask of the client's rows in which something is left."""
    found = pa.chunked_array([pa.nulls(rows.num_rows, pa.bool_()).fill_null(False)])
    for name in table.contacts:
        there = pc.is_valid(rows[name])
        if name in _REASONS:
            there = pc.and_(there, pc.fill_null(pc.not_equal(rows[name], ERASED), False))
        found = pc.or_(found, there)
    return pc.and_(found, pc.fill_null(own(rows), False))


def without_contact(table: Table, own: Mask, rows: pa.Table) -> pa.Table:
    """Return the rows, those of a client with an empty contact."""
    mask = _with_contact(table, own, rows)
    for name in table.contacts:
        field = rows.schema.field(name)
        empty = pa.nulls(rows.num_rows, field.type)
        if name in _REASONS:
            erased = pa.scalar(ERASED, field.type)
            empty = pc.if_else(pc.is_valid(rows[name]), erased, pa.scalar(None, field.type))
        changed = _chosen(mask, empty, rows[name])
        rows = rows.set_column(rows.schema.get_field_index(name), field, changed)
    return rows


def _chosen(mask: pa.Array, empty: pa.Array, values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_nested(values.type):  # of lists, if_else knows no arrays
        indices = pc.if_else(mask, pa.scalar(None, pa.int64()), pa.array(range(len(values))))
        return values.take(indices)
    return pc.if_else(mask, empty, values)


# Each of several parts is an open file, of which a process may have some thousand.
MOST_PARTS = 500

_IPC_OPTIONS = ipc.IpcWriteOptions(compression="lz4")


def split_by_key(
    rows: Iterable[pa.Table], key: str, parts: int, folder: Path
) -> Iterator[pa.Table]:
    """Yield rows as so many tables at most, by the hash of a column of texts.

    More than one are in temporary files in a folder until then. These have no names, so that
    nothing is left of who is killed.
    """
    if parts <= 1:
        found = [*rows]
        yield from [pa.concat_tables(found)] if found else []
        return
    with ExitStack() as stack:
        count = min(parts, MOST_PARTS)
        files = [stack.enter_context(TemporaryFile(dir=folder)) for _ in range(count)]
        with ExitStack() as writing:
            writers: dict[int, ipc.RecordBatchStreamWriter] = {}
            for table in rows:
                for number, part in _parts_of(table, key, len(files)):
                    if number not in writers:
                        writer = ipc.new_stream(files[number], table.schema, options=_IPC_OPTIONS)
                        writers[number] = writing.enter_context(writer)
                    writers[number].write_table(part)
        for file in files:
            if file.tell():
                file.seek(0)
                with ipc.open_stream(file) as reader:
                    yield reader.read_all()


def _parts_of(table: pa.Table, key: str, count: int) -> Iterator[tuple[int, pa.Table]]:
    encoded = pc.fill_null(table[key], "").combine_chunks().dictionary_encode()
    of_key = np.array([crc32(one.encode()) % count for one in encoded.dictionary.to_pylist()])
    of_row = of_key[encoded.indices.to_numpy()]
    order = np.argsort(of_row, kind="stable")
    ordered = table.take(pa.array(order))
    numbers, starts = np.unique(of_row[order], return_index=True)
    ends = [*starts[1:], table.num_rows]
    for number, start, end in zip(numbers, starts, ends, strict=True):
        yield int(number), ordered.slice(int(start), int(end - start))
