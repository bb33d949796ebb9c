"""Rows in parts of which each fits into memory, with all rows of a key in one part; in one pass."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

# Each of several parts is an open file, of which a process may have some thousand.
MOST_PARTS = 500

_OPTIONS = ipc.IpcWriteOptions(compression="lz4")


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
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        count = min(parts, MOST_PARTS)
        files = [stack.enter_context(TemporaryFile(dir=folder)) for _ in range(count)]
        _write(rows, key, files)
        for file in files:
            if file.tell():
                file.seek(0)
                with ipc.open_stream(file) as reader:
                    yield reader.read_all()


def _write(rows: Iterable[pa.Table], key: str, files: Sequence[IO[bytes]]) -> None:
    with ExitStack() as stack:
        writers: dict[int, ipc.RecordBatchStreamWriter] = {}
        for table in rows:
            for number, part in _parts(table, key, len(files)):
                if number not in writers:
                    writer = ipc.new_stream(files[number], table.schema, options=_OPTIONS)
                    writers[number] = stack.enter_context(writer)
                writers[number].write_table(part)


def _parts(table: pa.Table, key: str, count: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield those parts that have rows of a table, by number."""
    encoded = pc.fill_null(table[key], "").combine_chunks().dictionary_encode()
    of_key = np.array([crc32(one.encode()) % count for one in encoded.dictionary.to_pylist()])
    of_row = of_key[encoded.indices.to_numpy()]
    order = np.argsort(of_row, kind="stable")
    ordered = table.take(pa.array(order))
    numbers, starts = np.unique(of_row[order], return_index=True)
    ends = [*starts[1:], table.num_rows]
    for number, start, end in zip(numbers, starts, ends, strict=True):
        yield int(number), ordered.slice(int(start), int(end - start))
