"""Comparing what is not positions and holders: contacts, countries of exchanges, rejected records.

Contacts are counted, and samples say which columns differ, not what is in them: a sample gets into
logs, where no erasure finds it.
"""

from dataclasses import dataclass
from typing import Any

from shardpost.delta.query import rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table
from shardpost.holders.model.view_tables import CLIENTS, EXCHANGES, REJECTED_RECORDS
from shardpost.rebuilds.comparison import (
    SIDES,
    both,
    compared_sql,
    counted,
    same_values,
    some_sql,
)
from shardpost.rebuilds.model.difference import OTHERS, Differences
from shardpost.settings import Settings

SAMPLES = 5  # of each kind of difference
_ALIASES = (("o", "old"), ("n", "new"))


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
    ' CAST(t."offset" AS STRING)) AS id FROM {{side}}_{name} t'
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
    pairs = (f"{a}.{name} AS {side}_{name}" for name in one.columns for a, side in _ALIASES)
    sql = compared_sql(
        one.rows.format(name=one.table.name),
        "id",
        same_values(one.columns),
        ", ".join(["COALESCE(o.id, n.id) AS id", *pairs]),
    )
    tables = both(old, new, one.table)
    counts = counted(settings, sql, tables)
    if not counts.different:
        return counts, []
    return counts, rows(settings, some_sql(sql, SAMPLES, 3 * SAMPLES), tables)


def _sample(name: str, one: Compared, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row that differs: its id under the name of what it is, and what may be told."""
    sample: dict[str, Any] = {OTHERS[name]: row["id"], "difference": row["difference"]}
    if row["difference"] == "changed":
        pairs = {column: (row[f"old_{column}"], row[f"new_{column}"]) for column in one.columns}
        sample["columns"] = [column for column, (was, is_) in pairs.items() if was != is_]
    return sample | {
        side: {column: row[f"{side}_{column}"] for column in one.told} for side in SIDES
    }
