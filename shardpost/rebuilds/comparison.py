"""The SQL by which two views are compared key by key, and what it finds; no JVM.

Here for all but positions and holders: contacts, countries of exchanges, rejected records. Contacts
are counted, and samples say which columns differ, not what is in them: a sample gets into logs,
where no erasure finds it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shardpost.delta.object_store import Tables
from shardpost.delta.query import rows, version_at
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table, Version
from shardpost.holders.model.view_tables import CLIENTS, EXCHANGES, REJECTED_RECORDS
from shardpost.rebuilds.model.difference import OTHERS, Differences

SIDES = ("old", "new")

Versions = Mapping[Table, Version]

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


def counted(tables: Tables, sql: str, versions: Versions) -> Differences:
    """Return how many keys are equal and not, of a query that `compared_sql` begins."""
    counts = rows(tables, f"{sql} {_COUNTS}", versions)
    return Differences(**{row["difference"]: row["n"] for row in counts})


def some_sql(sql: str, of_each: int, most: int) -> str:
    """Return the query of some rows of each kind of difference, by their column `id`."""
    return f"{sql} {_SOME.format(of_each=of_each, most=most).strip()}"


def id_and_values(key: str, names: tuple[str, ...]) -> str:
    """Return the key of either side as `id`, and columns of both, as `old_…` and `new_…`."""
    pairs = (
        f"{alias}.{name} AS {side}_{name.strip(chr(34))}"
        for name in names
        for alias, side in zip("on", SIDES, strict=True)
    )
    return ", ".join([f"COALESCE(o.{key}, n.{key}) AS id", *pairs])


SAMPLES = 5  # of each kind of difference


@dataclass(frozen=True)
class Compared:
    """A table as it is compared: its rows with `id`, and the columns of which some may be told."""

    table: Table
    rows: str
    columns: tuple[str, ...]
    told: tuple[str, ...] = ()


_OPEN = "SELECT t.key AS id, t.* FROM {{side}}_{name} t WHERE t.is_open"
_PLACED = (
    "SELECT DISTINCT concat(t.topic, '[', CAST(t.\"partition\" AS STRING), ']@',"
    ' CAST(t."offset" AS STRING), \' of \', CAST(t."timestamp" AS STRING)) AS id'
    " FROM {{side}}_{name} t"
)
_COMPARED_OTHERS = {
    "clients": Compared(CLIENTS, _OPEN, ("name", "email", "subscribed")),
    "exchanges": Compared(EXCHANGES, _OPEN, ("country",), ("country",)),
    "rejected": Compared(REJECTED_RECORDS, _PLACED, ()),
}

Others = dict[str, Differences | str]


def compare_others(
    tables: Tables, old: Snapshot, new: Snapshot
) -> tuple[Others, list[dict[str, Any]]]:
    """Return how two views differ in each of OTHERS, or why one is not compared; and some of it."""
    differences_of: Others = {}
    samples: list[dict[str, Any]] = []
    for name, one in _COMPARED_OTHERS.items():
        if why := _why_not(one.table, old) or _why_not(one.table, new):
            differences_of[name] = why
        else:
            differences, some = _compared(tables, one, old, new)
            differences_of[name] = differences
            samples += [_sample(name, one, row) for row in some]
    return differences_of, samples


def _why_not(table: Table, view: Snapshot) -> str | None:
    """Return why a table of a view is not read; None if it may be."""
    if table.name not in view.tables:
        return f"snapshot {view.number} has no table {table.name}"
    if table.contacts and not view.has_contacts:
        return (
            f"a client was erased in snapshot {view.erased_in}: contacts of before, as of snapshot"
            f" {view.number}, are not read any more"
        )
    return None


def _compared(
    tables: Tables, one: Compared, old: Snapshot, new: Snapshot
) -> tuple[Differences, list[dict[str, Any]]]:
    rows_, columns = one.rows.format(name=one.table.name), id_and_values("id", one.columns)
    sql = compared_sql(rows_, "id", same_values(one.columns), columns)
    versions = both(old, new, one.table)
    counts = counted(tables, sql, versions)
    if not counts.different:
        return counts, []
    return counts, rows(tables, some_sql(sql, SAMPLES, 3 * SAMPLES), versions)


def _sample(name: str, one: Compared, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row that differs: its id under the name of what it is, and what may be told."""
    sample: dict[str, Any] = {OTHERS[name]: row["id"], "difference": row["difference"]}
    if row["difference"] == "changed":
        pairs = {column: (row[f"old_{column}"], row[f"new_{column}"]) for column in one.columns}
        sample["columns"] = [column for column, (was, is_) in pairs.items() if was != is_]
    return sample | {
        side: {column: row[f"{side}_{column}"] for column in one.told} for side in SIDES
    }
