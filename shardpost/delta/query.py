"""SQL over given versions of Delta tables, without a JVM.

Queries run in deltalake's own engine (DataFusion), not on its pyarrow dataset, whose threads abort
the interpreter on exit now and then (seen with deltalake 1.6.6, pyarrow 26). Beside them: what
tables can raise.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.lib import ArrowException

from shardpost.delta import object_store, storage
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.delta.table import LayeredVersion, Table, Version, from_row
from shardpost.errors import ShardpostError, TablesAwayError, first_line

Value = TypeVar("Value")


@contextmanager
def table_errors() -> Iterator[None]:
    """Raise errors of tables, such as a full disk, as TablesAwayError."""
    try:
        yield
    except (OSError, DeltaError, ArrowException) as error:
        said = object_store.describe_error(error) or first_line(error)
        text = f"the tables could not be read or written: {said}"
        raise TablesAwayError(text) from error


def at_snapshot(snapshot: Snapshot, *tables: Table) -> dict[Table, Version]:
    """Return those tables in a snapshot's folders, and their versions, as `query` takes them."""
    return {snapshot.located(table): version_at(snapshot, table) for table in tables}


def version_at(snapshot: Snapshot, table: Table) -> Version:
    """Return the version of a table at a snapshot; ShardpostError if it may not be read any more.

    That is the case for a table with contacts, if a client was erased since.
    """
    if table.contacts and not snapshot.has_contacts:
        raise ShardpostError(
            f"table {table.name} cannot be read at snapshot {snapshot.number}: a client was erased"
            f" in snapshot {snapshot.erased_in}; ask for that snapshot or a newer one"
        )
    if table.layer is None or snapshot.folded_up_to(table.name) >= snapshot.number:
        return snapshot.tables[table.name]
    return snapshot.layered(table)


def query(tables: Tables, sql: str, versions: Mapping[Table, Version]) -> pa.Table:
    """Run one SQL query over those tables, under their own names, at those versions (None: newest).

    ShardpostError for a table, version or file that does not exist.
    """
    return OpenedTables(tables, versions).query(sql)


def stream(
    tables: Tables, sql: str, versions: Mapping[Table, Version], rows_at_once: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Run one SQL query as `query` does, and yield its batches as they come.

    `rows_at_once` bounds what is in memory where rows may be large: so many rows are decoded
    together, one batch after the other.
    """
    config = None
    if rows_at_once is not None:
        config = {
            "datafusion.execution.batch_size": str(rows_at_once),
            "datafusion.execution.target_partitions": "1",
        }
    yield from OpenedTables(tables, versions, config).batches(sql)


def rows(tables: Tables, sql: str, versions: Mapping[Table, Version]) -> list[dict[str, Any]]:
    """Run one SQL query and return its rows as dicts; timestamps are aware, in UTC."""
    return OpenedTables(tables, versions).rows(sql)


def select(tables: Tables, table: Table, kind: type[Value], rest: str = "") -> list[Value]:
    """Return the rows of a table as values of the dataclass that declares it.

    `rest` of the query follows the table's name. Before the table is created it has no rows.
    """
    if not storage.exists(tables, table):
        return []
    sql = f"SELECT * FROM {table.name} {rest}"  # noqa: S608 - the name of a declared table
    return [from_row(kind, row) for row in rows(tables, sql, {table: None})]


def has_rows(tables: Tables, snapshot: Snapshot, table: Table, condition: str) -> bool:
    """Tell whether a table has a row at a snapshot that meets a condition, in SQL."""
    sql = f"SELECT 1 FROM {table.name} WHERE {condition} LIMIT 1"  # noqa: S608 - our own
    return bool(query(tables, sql, at_snapshot(snapshot, table)).num_rows)


class OpenedTables:
    """Tables at given versions, opened once for several queries; errors are those of `query`."""

    def __init__(
        self,
        tables: Tables,
        versions: Mapping[Table, Version],
        config: dict[str, str] | None = None,
    ) -> None:
        self._tables, self._versions = tables, versions
        self._builder = QueryBuilder(config)
        for table, version in versions.items():
            if not isinstance(version, LayeredVersion):
                self._register(table, version, table.name)
        for table, version in versions.items():  # the keys of which may be in the others
            if isinstance(version, LayeredVersion):
                self._add_layered(table, version)

    @classmethod
    def of(cls, tables: Tables, table: Table, opened: DeltaTable) -> "OpenedTables":
        """Return an opened table."""
        made = cls(tables, {})
        made._versions = {table: opened.version()}
        made._builder = made._builder.register(table.name, opened)
        return made

    def define(self, name: str, select: str) -> None:
        """Give a query over the tables a name, for later queries."""
        self._builder.execute(f"CREATE VIEW {name} AS {select}")

    def keep(self, name: str, select: str) -> None:
        """Give the rows of a query a name, for queries after it: it is run once, in memory."""
        with _reporting_missing_files(self._tables, self._versions):
            self._builder.execute(f"CREATE TABLE {name} AS {select}")

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Run one SQL query and return its rows as the function `rows` does."""
        return python_rows(self.query(sql))

    def query(self, sql: str) -> pa.Table:
        """Run one SQL query and return its rows."""
        with _reporting_missing_files(self._tables, self._versions):
            # Not pa.table(…): that imports pandas, which takes longer than the query.
            return self._planned(sql).read_all()

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Run one SQL query and yield its batches as they come."""
        yield from self._read(self._planned(sql))

    def reader(self, sql: str) -> pa.RecordBatchReader:
        """Plan one SQL query, DeltaError if it cannot be; return what runs it as it is read."""
        planned = self._planned(sql)
        return pa.RecordBatchReader.from_batches(planned.schema, self._read(planned))

    def _planned(self, sql: str) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_stream(self._builder.execute(sql))

    def _read(self, planned: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with _reporting_missing_files(self._tables, self._versions):
            yield from planned

    def _add_layered(self, table: Table, version: LayeredVersion) -> None:
        layer, stored, over = table.layer, f"base_of_{table.name}", f"layer_of_{table.name}"
        assert layer is not None  # noqa: S101 - else no version is layered
        self._register(table, version.version, stored)
        self._register(layer.source, version.source, over)
        names = {"stored": stored, "layer": over, "folded": version.folded, "small": ""}
        sql = (
            layer.view.format(**names)
            if version.keys is None
            else layer.of_keys.format(**names, keys=f"({version.keys})")
        )
        self.define(table.name, sql)

    def _register(self, table: Table, version: int | None, name: str) -> None:
        root = self._tables.root
        try:
            found = storage.open_table(self._tables, table, version)
        except TableNotFoundError:
            raise ShardpostError(f"no table {table.path} in {root}") from None
        except DeltaError as error:
            raise ShardpostError(
                f"table {table.path} in {root} cannot be read at version {version}:"
                f" {object_store.describe_error(error) or first_line(error)}"
            ) from None
        self._builder = self._builder.register(name, found)


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return a column's values; times without pyarrow, which imports pandas for aware ones."""
    type_ = column.type
    if not (pa.types.is_timestamp(type_) and type_.tz):
        return list(column.to_pylist())
    naive = column.cast(pa.timestamp(type_.unit)).to_pylist()
    return [at and at.replace(tzinfo=UTC) for at in naive]


def python_rows(found: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as dicts of such values."""
    columns = zip(*map(python_values, found.columns), strict=True)
    return [dict(zip(found.schema.names, row, strict=True)) for row in columns]


@contextmanager
def _reporting_missing_files(tables: Tables, versions: Mapping[Table, Version]) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:
        if "not found" not in str(error):
            raise
        stored = {t: v.version if isinstance(v, LayeredVersion) else v for t, v in versions.items()}
        names = ", ".join(f"{table.path}@{version}" for table, version in stored.items())
        raise ShardpostError(
            f"a file of {names} in {tables.root} is missing: it was vacuumed, or removed"
            " by hand; ask for a newer snapshot"
        ) from error
