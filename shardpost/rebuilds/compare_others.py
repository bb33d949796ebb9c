"""Comparing what is not positions and holders: contacts, countries of exchanges, rejected records.

Contacts are counted, and samples say which columns differ, not what is in them: a sample gets into
logs, where no erasure finds it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shardpost.delta.layers import Version
from shardpost.delta.query import rows, version_at
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.holders.model.tables import CLIENTS, EXCHANGES, REJECTED_RECORDS
from shardpost.rebuilds.model.difference import OTHERS, Differences
from shardpost.settings import Settings

SAMPLES = 5  # of each kind of difference


@dataclass(frozen=True)
class Compared:
    """A table as it is compared: its rows with `id`, and the columns of which some may be told."""

    table: Table
    rows: str
    columns: tuple[str, ...]
    told: tuple[str, ...] = ()


_OPEN = "SELECT t.key AS id, t.* FROM {side}_{name} t WHERE t.is_open"
_PLACED = (
    "SELECT DISTINCT concat(t.topic, '[', CAST(t.\"partition\" AS STRING), ']@',"
    ' CAST(t."offset" AS STRING)) AS id FROM {side}_{name} t'
)
_COMPARED = dict(
    zip(
        OTHERS,
        (
            Compared(CLIENTS, _OPEN, ("name", "email", "subscribed")),
            Compared(EXCHANGES, _OPEN, ("country",), ("country",)),
            Compared(REJECTED_RECORDS, _PLACED, ()),
        ),
        strict=True,
    )
)
_SQL = """
WITH o AS ({old}), n AS ({new}), compared AS (
  SELECT COALESCE(o.id, n.id) AS id, {columns} CASE
    WHEN n.id IS NULL THEN 'only_old' WHEN o.id IS NULL THEN 'only_new'
    WHEN {same} THEN 'equal' ELSE 'changed' END AS difference
  FROM o FULL OUTER JOIN n ON o.id = n.id
)
"""
_COUNTS = "SELECT difference, count(*) AS n FROM compared GROUP BY difference"
_SOME = f"""
SELECT * FROM (
  SELECT c.*, ROW_NUMBER() OVER (PARTITION BY c.difference ORDER BY c.id) AS nth FROM compared c
  WHERE c.difference <> 'equal'
) s WHERE s.nth <= {SAMPLES} ORDER BY s.difference, s.id
"""  # noqa: S608 - a constant

Others = dict[str, Differences | None]


def compare_others(
    settings: Settings, old: Snapshot, new: Snapshot
) -> tuple[Others, list[dict[str, Any]]]:
    """Return how two views differ in each of OTHERS, and some of it.

    None of a table that one of them does not have, or that may not be read any more.
    """
    found: Others = {}
    samples: list[dict[str, Any]] = []
    for name, one in _COMPARED.items():
        found[name] = None
        if _is_readable(one.table, old) and _is_readable(one.table, new):
            differences, some = _compared(settings, one, old, new)
            found[name] = differences
            samples += [_sample(name, one, row) for row in some]
    return found, samples


def _is_readable(table: Table, view: Snapshot) -> bool:
    return table.name in view.tables and (view.has_contacts or not table.contacts)


def _compared(
    settings: Settings, one: Compared, old: Snapshot, new: Snapshot
) -> tuple[Differences, list[dict[str, Any]]]:
    sides = {"old": old, "new": new}
    sql = _SQL.format(
        **{side: one.rows.format(side=side, name=one.table.name) for side in sides},
        columns="".join(
            f"o.{name} AS old_{name}, n.{name} AS new_{name}, " for name in one.columns
        ),
        same=" AND ".join(f"(o.{name} IS NOT DISTINCT FROM n.{name})" for name in one.columns)
        or "TRUE",
    ).strip()
    tables = {
        _named(one.table, side, view): version_at(view, one.table) for side, view in sides.items()
    }
    counts = Differences(**_counted(settings, sql, tables))
    return counts, rows(settings, f"{sql} {_SOME}", tables) if counts.different else []


def _counted(settings: Settings, sql: str, tables: Mapping[Table, Version]) -> dict[str, int]:
    return {row["difference"]: row["n"] for row in rows(settings, f"{sql} {_COUNTS}", tables)}


def _named(table: Table, side: str, view: Snapshot) -> Table:
    there = view.located(table)
    return replace(there, name=f"{side}_{table.name}", folder=there.path)


def _sample(name: str, one: Compared, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row that differs: its id under the name of what it is, and what may be told."""
    sample: dict[str, Any] = {OTHERS[name]: row["id"], "difference": row["difference"]}
    if row["difference"] == "changed":
        pairs = {column: (row[f"old_{column}"], row[f"new_{column}"]) for column in one.columns}
        sample["columns"] = [column for column, (was, is_) in pairs.items() if was != is_]
    return sample | {
        side: {column: row[f"{side}_{column}"] for column in one.told} for side in ("old", "new")
    }
