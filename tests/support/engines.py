"""The views of other engines, run by them: the rows of each table, and those that are expected."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import polars as pl

from shardpost import tables
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import FORM_PROPERTY, opened
from shardpost.delta.table import Array, Table
from shardpost.holders.engine_views import Engine, EngineViews
from shardpost.holders.model.view_tables import LAYERED, VIEW
from shardpost.settings import Settings
from tests.support.installed import installed

# {table: its rows, as text, in order}
Rows = dict[str, list[str]]


def selects() -> dict[str, str]:
    """Return {table: a query of the columns whose values all engines give alike}."""
    return {table.name: f"SELECT {_compared(table)} FROM {table.name}" for table in VIEW}  # noqa: S608


def _compared(table: Table) -> str:
    plain = ("STRING", "BIGINT", "BOOLEAN", "INT", Array("STRING"))
    names = [name for name, type_ in table.columns if type_ in plain]
    return ", ".join(name for name in names if name not in ("partition", "offset"))


def expected(settings: Settings) -> Rows:
    """Return what the tables have at the newest snapshot."""
    return {
        name: in_order(map(_values, tables.sql(select, settings=settings).read_all().to_pylist()))
        for name, select in selects().items()
    }


def _values(row: dict[str, Any]) -> list[Any]:
    return [*row.values()]


def in_order(found: Iterable[Iterable[Any]]) -> list[str]:
    """Return rows as they are compared."""
    return sorted(str([*row]) for row in found)


def views(settings: Settings, engine: Engine, number: int | None = None) -> str:
    """Return the views of an engine, printed when a snapshot was the newest; by default now."""
    return EngineViews(engine, settings.tables_root, tables.snapshot(number, settings)).text()


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """Return a database in memory; its extension takes a second, and is that of the package."""
    connection = duckdb.connect()
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    connection.execute(f"LOAD '{extension}'")
    return connection


def by_duckdb(text: str) -> Rows:
    """Return what DuckDB has by its views."""
    _duckdb().execute(text.replace("INSTALL delta;\nLOAD delta;\n", ""))
    return {
        name: in_order(_duckdb().execute(select).fetchall()) for name, select in selects().items()
    }


def by_polars(text: str) -> Rows:
    """Return what Polars has by the function that is printed."""
    there: dict[str, Any] = {}
    exec(text, there)  # noqa: S102 - printed by us, for that
    context = there["shardpost"]()
    return {
        name: in_order(context.execute(select).collect().rows())
        for name, select in selects().items()
    }


def raw(settings: Settings, view: Snapshot | None = None) -> dict[str, Rows]:
    """Return what engines have of the folded tables without views, in the folders of a snapshot."""
    own = {
        table.name: f"{settings.tables_root}/{(view.located(table) if view else table).path}"
        for table in LAYERED
    }
    by_polars_ = pl.SQLContext({name: pl.scan_delta(path) for name, path in own.items()})
    found: dict[str, Rows] = {"duckdb": {}, "polars": {}}
    for name, path in own.items():
        scan = f"delta_scan('{path}')"
        by_scan = selects()[name].removesuffix(name) + scan
        found["duckdb"][name] = in_order(_duckdb().execute(by_scan).fetchall())
        found["polars"][name] = in_order(by_polars_.execute(selects()[name]).collect().rows())
    return found


def expected_of(settings: Settings, number: int) -> Rows:
    """Return what the folded tables have at a snapshot."""
    return {
        table.name: in_order(
            map(
                _values,
                tables.sql(selects()[table.name], snapshot=number, settings=settings)
                .read_all()
                .to_pylist(),
            )
        )
        for table in LAYERED
        if table.name in tables.snapshot(number, settings).tables
    }


def said(settings: Settings, table: Table) -> dict[str, str]:
    """Return what the newest version of a table says of its fold."""
    found = opened(installed(settings).tables, table).metadata().configuration
    return {
        name.removeprefix("shardpost."): value
        for name, value in found.items()
        if name.startswith("shardpost.") and name != FORM_PROPERTY
    }


def deletion_vectors(settings: Settings) -> list[str]:
    """Return what the logs of all tables have of deletion vectors, by file."""
    logs = sorted(Path(settings.tables_root).glob("*/_delta_log/*.json"))
    assert logs
    return [str(log) for log in logs if "deletionvector" in log.read_text().lower()]
