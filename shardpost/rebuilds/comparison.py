"""The SQL by which two views are compared key by key, and what it finds; no JVM."""

from collections.abc import Mapping
from dataclasses import replace

from shardpost.delta.layers import Version
from shardpost.delta.query import rows, version_at
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.rebuilds.model.difference import Differences
from shardpost.settings import Settings

SIDES = ("old", "new")

Tables = Mapping[Table, Version]

_COMPARED = """
WITH o AS ({old}), n AS ({new}), compared AS (
  SELECT {columns}, CASE
    WHEN n.{key} IS NULL THEN 'only_old' WHEN o.{key} IS NULL THEN 'only_new'
    WHEN {same} THEN 'equal' ELSE 'changed' END AS difference
  FROM o FULL OUTER JOIN n ON o.{key} = n.{key}
)
"""
_COUNTS = "SELECT difference, count(*) AS n FROM compared GROUP BY difference"
_SOME = """
SELECT * FROM (
  SELECT c.*, ROW_NUMBER() OVER (PARTITION BY c.difference ORDER BY c.id) AS nth FROM compared c
  WHERE c.difference <> 'equal'
) s WHERE s.nth <= {of_each} ORDER BY s.difference, s.id LIMIT {most}
"""


def compared_sql(relation: str, key: str, same: str, columns: str) -> str:
    """Return the start of a query, with the relation `compared` of the two sides.

    `relation` is a query of one side, with {side} in the names of its tables. `same` is a condition
    on o, the old row, and n, the new one, of the same key; `columns` are those of both to keep.
    """
    old, new = (relation.format(side=side) for side in SIDES)
    return _COMPARED.format(old=old, new=new, key=key, same=same, columns=columns).strip()


def same_values(names: tuple[str, ...]) -> str:
    """Return the condition that these columns are equal, or null on both sides."""
    return " AND ".join(f"(o.{name} IS NOT DISTINCT FROM n.{name})" for name in names) or "TRUE"


def both(old: Snapshot, new: Snapshot, *tables: Table) -> dict[Table, Version]:
    """Return tables of two views as a query takes them, as `old_…` and `new_…`."""
    return of_side("old", old, *tables) | of_side("new", new, *tables)


def of_side(side: str, view: Snapshot, *tables: Table) -> dict[Table, Version]:
    """Return tables of one view so."""
    located = ((table, view.located(table)) for table in tables)
    return {
        replace(there, name=f"{side}_{table.name}", folder=there.path): version_at(view, table)
        for table, there in located
    }


def counted(settings: Settings, sql: str, tables: Tables) -> Differences:
    """Return how many keys are equal and not, of a query that `compared_sql` begins."""
    found = rows(settings, f"{sql} {_COUNTS}", tables)
    return Differences(**{row["difference"]: row["n"] for row in found})


def some_sql(sql: str, of_each: int, most: int) -> str:
    """Return the query of some rows of each kind of difference, by their column `id`."""
    return f"{sql} {_SOME.format(of_each=of_each, most=most).strip()}"
