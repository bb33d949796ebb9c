"""Small tables that grow row by row, each row with a number of its own, in few files.

The row with the highest number is alone in its file, so that it is found by the files' statistics,
and read and replaced at a cost that does not grow with the table. A change is for one version of
the table, and is made again where another writer was first.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction

from shardpost.delta import parquet_files, storage, table_log
from shardpost.delta.parquet_files import to_merge
from shardpost.delta.storage import HIGHEST, RowFile, Tables, row_files
from shardpost.delta.table import Table
from shardpost.delta.table_log import VersionExistsError


class RowTable:
    """One version of such a table, to be changed; `key` is the column of the numbers."""

    def __init__(self, tables: Tables, table: Table, key: str) -> None:
        self._tables, self._table, self._key = tables, table, key
        opened = storage.writable(tables, table)
        self._version = opened.version()
        self.files = row_files(opened, key)

    def newest(self) -> int:
        """Return the highest number; 0 of an empty table."""
        return max((self._highest(file) for file in self.files), default=0)

    def with_number(self, number: int) -> list[tuple[RowFile, pa.Table]]:
        """Return the files that have rows of a number, and all their rows."""
        files = (file for file in self.files if file.lowest <= number <= file.highest)
        read = ((file, self.read(file)) for file in files)
        return [(file, rows) for file, rows in read if number in rows[self._key].to_pylist()]

    def read(self, file: RowFile) -> pa.Table:
        """Return the rows of a file."""
        return parquet_files.read(self._tables, self._table, file.path)

    def insert(self, row: pa.Table) -> None:
        """Add a row with a number above all others; small files of those before it are merged."""
        self._put([row], to_merge(self._table, {file.path: file.size for file in self.files}))

    def replace(self, files: Iterable[RowFile], rows: Sequence[pa.Table]) -> None:
        """Put new files, one for each table of rows, in the place of files."""
        self._put(rows, removed=[file.path for file in files])

    def note(self, transactions: Mapping[str, int]) -> None:
        """Store the versions of Delta's application transactions."""
        table_log.commit(self._tables, self._table, self._version, (), (), transactions)

    def put_in_place(self, path: str, made: AddAction | None) -> None:
        """Put a file that is written, or none, in the place of one, if that is still there."""
        if path in {file.path for file in self.files}:
            added = [made] if made else []
            table_log.commit(self._tables, self._table, self._version, added, [path])

    def split(self, rows: pa.Table, numbers: Iterable[int]) -> tuple[pa.Table, pa.Table]:
        """Return the rows that have one of these numbers, and the others."""
        chosen = pc.is_in(rows[self._key], pa.array([*numbers], pa.int64()))
        return rows.filter(chosen), rows.filter(pc.invert(chosen))

    def _put(
        self,
        rows: Sequence[pa.Table],
        merged: Sequence[Sequence[str]] = (),
        removed: Sequence[str] = (),
    ) -> None:
        tables, table = self._tables, self._table
        actions: list[AddAction] = []
        try:
            for part in filter(len, rows):
                made = parquet_files.write(tables, table, part, self._name())
                actions.append(made)
            for group in merged:
                made = parquet_files.merge(tables, table, group, self._name())
                actions.append(made)
        except BaseException:
            self._delete(actions)
            raise
        gone = [*removed, *(path for group in merged for path in group)]
        try:
            table_log.commit(tables, table, self._version, actions, gone)
        except VersionExistsError:
            self._delete(actions)
            raise

    def _delete(self, actions: Sequence[AddAction]) -> None:
        parquet_files.delete(self._tables, self._table, [action.path for action in actions])

    def _name(self) -> str:
        return f"{self._version + 1:08d}-{uuid.uuid4()}.parquet"

    def _highest(self, file: RowFile) -> int:
        if file.highest != HIGHEST:
            return file.highest
        return max(self.read(file)[self._key].to_pylist(), default=0)


def change(tables: Tables, table: Table, key: str, make: Callable[[RowTable], None]) -> None:
    """Let `make` change a table, and again while other writers are first; create it if need be.

    VersionExistsError if they always are.
    """

    def write() -> None:
        make(RowTable(tables, table, key))

    table_log.retrying(table, write)


def remove(tables: Tables, table: Table, key: str, numbers: Collection[int]) -> None:
    """Remove the rows of these numbers, but the highest, while others commit.

    What takes long, writing a file anew, is done once for each; its commit takes a moment, and is
    tried again where another writer was first (VersionExistsError if they always are). A file that
    others have merged meanwhile is looked at in that one.
    """
    first, seen = RowTable(tables, table, key), set[str]()
    gone = {*numbers} - {first.newest()}
    highest = max(gone, default=-1)

    def left() -> set[str]:
        files = RowTable(tables, table, key).files
        return {file.path for file in files if file.lowest <= highest} - seen

    def kept(part: pa.Table) -> pa.Table:
        return first.split(part, gone)[1]

    while paths := left():
        seen |= paths
        for path in paths:
            parts = parquet_files.parts(tables, table, path, [key])
            if any(len(kept(part)) < len(part) for part in parts):
                target = f"thinned-{uuid.uuid4()}.parquet"
                made = parquet_files.rewrite(tables, table, path, target, kept)
                put = partial(RowTable.put_in_place, path=path, made=made)
                change(tables, table, key, put)
