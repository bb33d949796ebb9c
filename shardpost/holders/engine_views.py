"""Views with which other engines read the newest snapshot, as text to run there.

Without them they have that of the last fold (folding.py). A view has of each key the newest row: of
the table, and of what its layer has since. All engines run one SQL.

The views read the newest versions of the tables. What a run has not committed yet is in histories
and changes alone, with the number of a later snapshot. A later fold leaves them as right as they
were: what the layer has since an earlier one is only more than is needed. A swap of rebuilt tables
does not: the folders are other ones then, and a view that finds it so raises an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from enum import StrEnum
from importlib.resources import files
from pprint import pformat

from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.delta.table import Table, to_row
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import newest_first
from shardpost.holders.model.view_tables import SHARE_HOLDERS, VIEW


class Engine(StrEnum):
    """The engines for which there are views."""

    DUCKDB = "duckdb"
    SPARK = "spark"
    TRINO = "trino"
    POLARS = "polars"


@dataclass(frozen=True)
class _Dialect:
    """How an engine names a table's folder, raises an error, quotes a name, calls text."""

    scan: str
    error: str
    name: str = '"{}"'
    text: str = "VARCHAR"


_DIALECTS = {
    Engine.DUCKDB: _Dialect("delta_scan('{path}')", "error('{}')"),
    Engine.SPARK: _Dialect("delta.`{path}`", "raise_error('{}')", "`{}`", "STRING"),
    Engine.TRINO: _Dialect("{raw}", "CAST('{}' AS BIGINT)"),
    Engine.POLARS: _Dialect("{raw}", ""),
}
AGAIN = "print the views of Shardpost again: rebuilt tables were swapped since then"
# The view of the newest snapshot's number, which raises an error after a swap. It aggregates first:
# an engine may compute a column of rows that a LIMIT leaves out.
_COMMITTED = "committed_snapshot"
_NEWEST = """SELECT CASE WHEN MAX(CASE WHEN COALESCE(folders, '') = '{folders}' THEN snapshot END)
  = MAX(snapshot) THEN MAX(snapshot) ELSE {error} END AS snapshot FROM {snapshots}"""
_IS_COMMITTED = f"snapshot <= (SELECT snapshot FROM {_COMMITTED})"  # noqa: S608 - ours
_ROWS = "SELECT {columns}\n    FROM {stored} WHERE {committed}"
_NEWEST_ROWS = """SELECT {columns} FROM (
  SELECT u.*, ROW_NUMBER() OVER (PARTITION BY u.{key} ORDER BY {order}) AS nth FROM (
    {rows}
  ) u
) v WHERE nth = 1"""
_LAYERED_ROWS = """SELECT {columns}{of_stored} FROM {stored}
    UNION ALL
    SELECT {of_layer} FROM {layer} WHERE {committed} AND snapshot > {folded}{which}"""
_OF_STORED = """, '' AS kind,
      CAST(NULL AS {text}) AS retry_topic, CAST(NULL AS INT) AS retry_partition"""

_SAID = """Tables of Shardpost, as of the newest snapshot (now {number}, of {at}).
They are valid until rebuilt tables are swapped (`shardpost rebuild swap` or `rollback`). After
that they raise an error: print them again with `shardpost tables views`. After a fold they are
right but slower, since they read all rows since the previous fold: print them again. If a snapshot
is committed while a query over several views begins, a view may lack it: `shardpost sql` reads all
tables at one snapshot."""
_TRINO = """
CREATE SCHEMA IF NOT EXISTS delta.shardpost;
USE delta.shardpost;
-- The Delta Lake connector knows tables by name: once for each, if it is not registered yet.
"""
_REGISTER = (
    "CALL delta.system.register_table(schema_name => 'shardpost', table_name => {raw},"
    " table_location => '{path}');\n"
)
_POLARS = files(__package__).joinpath("polars_views.txt").read_text()


class EngineViews:
    """The views of an engine over the tables where a snapshot has them, below the folder `root`.

    `root` is a path or URL; each engine has credentials for it of its own.
    """

    def __init__(self, engine: Engine, root: str, snapshot: Snapshot) -> None:
        self._engine, self._dialect = engine, _DIALECTS[engine]
        self._root, self._snapshot = root, snapshot
        self._folders: str = to_row(snapshot)["folders"] or ""
        self._tables = [snapshot.located(table) for table in (*VIEW, SNAPSHOTS)]

    def text(self) -> str:
        """Return the text to run there: comments, what the engine needs, a view of each table."""
        at = f"{self._snapshot.committed_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        said = _SAID.format(number=self._snapshot.number, at=at).splitlines()
        mark = "#" if self._engine is Engine.POLARS else "--"
        comments = "".join(f"{mark} {line}\n" for line in said)
        views = {table.name: self._select(table) for table in self._tables}
        if self._engine is Engine.POLARS:
            return comments + self._polars(views)
        newest = _NEWEST.format(
            folders=self._folders,
            error=self._dialect.error.format(AGAIN),
            snapshots=self._scan(SNAPSHOTS),
        )
        create = f"\nCREATE OR REPLACE VIEW {self._dialect.name} AS\n{{}};\n"
        statements = [create.format(*view) for view in ({_COMMITTED: newest} | views).items()]
        return "".join((comments, self._head(), *statements))

    def _head(self) -> str:
        if self._engine is Engine.DUCKDB:
            return "\nINSTALL delta;\nLOAD delta;\n"
        if self._engine is Engine.SPARK:
            return ""
        names = ((self._raw(table).replace('"', "'"), self._path(table)) for table in self._tables)
        return _TRINO + "".join(_REGISTER.format(raw=raw, path=path) for raw, path in names)

    def _polars(self, views: Mapping[str, str]) -> str:
        names = {self._raw(table).strip('"'): self._path(table) for table in self._tables}
        items = "".join(f'    "{name}": """{query}""",\n' for name, query in views.items())
        return _POLARS.format(
            folders=pformat(names, sort_dicts=False),
            views=f"{{\n{items}}}",
            snapshots=repr(self._path(SNAPSHOTS)),
            expected=repr(self._folders),
            again=AGAIN,
            committed=_COMMITTED,
        )

    def _select(self, table: Table) -> str:
        """Return the query of a view."""
        own = {
            "columns": self._names(table),
            "stored": self._scan(table),
            "committed": _IS_COMMITTED,
            "key": self._dialect.name.format(table.names[0]),
        }
        if table.layer is None:
            return _ROWS.format(**own)
        own["folded"] = str(self._snapshot.folded_up_to(table.name))
        own |= {"of_stored": "", "of_layer": own["columns"], "which": ""}
        order = "u.snapshot DESC"
        if table.name != SHARE_HOLDERS.name:
            own["of_stored"] = _OF_STORED.format(text=self._dialect.text)
            of_layer = self._names(table, is_open=f"kind = '{RecordKind.UPSERT}'")
            own["of_layer"] = f"{of_layer}, kind, retry_topic, retry_partition"
            own["which"] = f" AND kind <> '{RecordKind.REJECTED}'"
            order = newest_first("u")
        rows = _LAYERED_ROWS.format(**own, layer=self._scan(table.layer_source))
        return _NEWEST_ROWS.format(**own, order=order, rows=rows)

    def _names(self, table: Table, **computed: str) -> str:
        quoted = {name: self._dialect.name.format(name) for name in table.names}
        return ", ".join(
            f"{computed[name]} AS {column}" if name in computed else column
            for name, column in quoted.items()
        )

    def _scan(self, table: Table) -> str:
        return self._dialect.scan.format(path=self._path(table), raw=self._raw(table))

    def _raw(self, table: Table) -> str:
        return f'"raw_{table.path.replace(".", "_")}"'

    def _path(self, table: Table) -> str:
        """Return the path or URL of a table, as a literal or a name has it between its quotes."""
        path = f"{self._root}/{table.path}"
        if self._engine is Engine.TRINO and path.startswith("/"):
            path = f"file://{path}"
        quote = {Engine.SPARK: "`", Engine.POLARS: ""}.get(self._engine, "'")
        return path.replace(quote, 2 * quote) if quote else path
