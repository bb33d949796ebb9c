"""The two sides of a rebuild, compared key by key at the same offsets, by SQL; no JVM.

Both are committed versions, whose files never change: so it does not matter what comes meanwhile.
Contacts are counted, and samples say which columns differ, not what is in them: a sample gets into
logs, where no erasure finds it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from shardpost.delta import snapshots
from shardpost.delta.object_store import Tables
from shardpost.delta.query import rows, version_at
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Table, Version, text_literal
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import (
    CLIENTS,
    EXCHANGES,
    POSITIONS,
    REJECTED_RECORDS,
    SHARE_HOLDERS,
)
from shardpost.kafka.kafka import Kafka
from shardpost.rebuilds import registry
from shardpost.rebuilds.model.difference import OTHERS, Difference, Differences
from shardpost.rebuilds.model.rebuild import Standing

SIDES = ("old", "new")

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


def both(old: Snapshot, new: Snapshot, *tables: Table) -> dict[Table, Version]:
    """Return tables of two views as a query takes them, as `old_…` and `new_…`."""
    return _of_side("old", old, *tables) | _of_side("new", new, *tables)


def _of_side(side: str, view: Snapshot, *tables: Table) -> dict[Table, Version]:
    located = ((table, view.located(table)) for table in tables)
    return {
        replace(there, name=f"{side}_{table.name}", folder=there.path): version_at(view, table)
        for table, there in located
    }


def _same_values(names: tuple[str, ...]) -> str:
    """Return the condition that these columns are equal, or null on both sides."""
    return " AND ".join(f"(o.{name} IS NOT DISTINCT FROM n.{name})" for name in names) or "TRUE"


def _id_and_values(key: str, names: tuple[str, ...]) -> str:
    """Return the key of either side as `id`, and columns of both, as `old_…` and `new_…`."""
    pairs = (
        f"{alias}.{name} AS {side}_{name.strip(chr(34))}"
        for name in names
        for alias, side in zip("on", SIDES, strict=True)
    )
    return ", ".join([f"COALESCE(o.{key}, n.{key}) AS id", *pairs])


Row = dict[str, Any]
Versions = Mapping[Table, Version]
SAMPLES, OTHER_SAMPLES = (7, 20), (5, 15)  # of each kind of difference, and in all
MOST_LISTED = 200  # positions whose records are looked up


def _differences(
    tables: Tables, sql: str, versions: Versions, samples: tuple[int, int] = SAMPLES
) -> tuple[Differences, list[Row]]:
    """Return how many keys are equal and not, and some rows that are not.

    `sql` is of `compared_sql`, with the key as `id`.
    """
    counts = rows(tables, f"{sql} {_COUNTS}", versions)
    found = Differences(**{row["difference"]: row["n"] for row in counts})
    of_each, most = samples
    some = f"{sql} {_SOME.format(of_each=of_each, most=most).strip()}"
    return found, rows(tables, some, versions) if found.different else []


VALUES = ("client", "ticker", "amount", "exchange")
_RECORD = (*VALUES, '"partition"', "offset", "timestamp")
_OPEN_POSITIONS = "SELECT * FROM {side}_positions WHERE is_open"
_HOLDING = "SELECT * FROM {{side}}_share_holders WHERE cardinality(positions) > 0 AND {which}"


def compare(tables: Tables, kafka: Kafka, old: Snapshot, new: Snapshot) -> Difference:
    """Return what two views differ in, with some samples."""
    columns = _id_and_values("key", _RECORD)
    sql = compared_sql(_OPEN_POSITIONS, "key", _same_values(VALUES), columns)
    positions, changed = _differences(tables, sql, both(old, new, POSITIONS))
    topic = kafka.topic("positions")
    samples = [
        {"position": row["id"], "difference": row["difference"]}
        | {side: _record(row, side, topic) for side in SIDES}
        for row in changed
    ]
    sql = holders_sql("COALESCE(o.client, n.client) AS id, o.positions AS old, n.positions AS new")
    holders, changed = _differences(tables, sql, both(old, new, SHARE_HOLDERS))
    samples += _holder_samples(tables, kafka, old, new, changed)
    others, not_compared, of_others = _compare_others(tables, old, new)
    samples += of_others
    return Difference(_side(old), _side(new), positions, holders, samples, others, not_compared)


def holders_sql(columns: str, which: str = "true") -> str:
    """Return the start of a query, with the relation `compared` of the holders of two views.

    It has `columns` of o, the old ones, and n, the new ones, and their `difference`.
    """
    relation = _HOLDING.format(which=which)
    return compared_sql(relation, "client", "o.positions = n.positions", columns)


def _record(row: Row, side: str, topic: str) -> Row | None:
    if row[f"{side}_offset"] is None:
        return None
    values = {name: row[f"{side}_{name}"] for name in VALUES}
    place = {name: row[f"{side}_{name}"] for name in ("partition", "offset")}
    return values | {"topic": topic, **place, "timestamp": row[f"{side}_timestamp"].isoformat()}


def _holder_samples(
    tables: Tables, kafka: Kafka, old: Snapshot, new: Snapshot, changed: Iterable[Row]
) -> list[Row]:
    """Return clients whose list changed, with the records of what only one side has."""
    in_one = {row["id"]: {*(row["old"] or ())} ^ {*(row["new"] or ())} for row in changed}
    ids = sorted({position for positions in in_one.values() for position in positions})
    records = _records(tables, kafka, old, new, ids[:MOST_LISTED])
    return [
        {
            "client": row["id"],
            "difference": row["difference"],
            "old": row["old"] or [],
            "new": row["new"] or [],
            "records": [
                record
                for position in sorted(in_one[row["id"]])
                for record in records.get(position, ())
                if record["client"] == row["id"]
            ],
        }
        for row in changed
    ]


def _records(
    tables: Tables, kafka: Kafka, old: Snapshot, new: Snapshot, positions: Iterable[str]
) -> dict[str, list[Row]]:
    """Return the records that the sides have of positions, with the country of their exchange.

    `country_by` is where the record is that says that country.
    """
    listed = ", ".join(f"({text_literal(position)})" for position in positions)
    if not listed:
        return {}
    records: dict[str, list[Row]] = {}
    for side, view in zip(SIDES, (old, new), strict=True):
        sql = (
            f"SELECT p.key, {', '.join(f'p.{name}' for name in _RECORD)}, e.country,"  # noqa: S608
            ' e."partition" AS e_partition, e."offset" AS e_offset'
            f" FROM {side}_positions p LEFT JOIN {side}_exchanges e"
            " ON p.exchange = e.key AND e.is_open"
            f" WHERE p.is_open AND p.key IN (SELECT v.column1 FROM (VALUES {listed}) v)"
        )
        for row in rows(tables, sql, _of_side(side, view, POSITIONS, EXCHANGES)):
            record = {"position": row["key"], "topic": kafka.topic("positions")}
            record |= {name: row[name] for name in (*VALUES, "country", "partition", "offset")}
            record["timestamp"] = row["timestamp"].isoformat()
            by = {"partition": row["e_partition"], "offset": row["e_offset"]}
            is_known = row["e_offset"] is not None
            record["country_by"] = {"topic": kafka.topic("exchanges"), **by} if is_known else None
            of_both = records.setdefault(row["key"], [])
            if of_both and of_both[0] | {"in": side} == record | {"in": side}:
                of_both[0]["in"] = "both"
            else:
                of_both.append(record | {"in": side})
    return records


def _side(view: Snapshot) -> Row:
    tables = (POSITIONS, SHARE_HOLDERS)
    return {
        "snapshot": view.number,
        "country": view.country,
        "tables": {view.located(table).path: view.tables[table.name] for table in tables},
    }


@dataclass(frozen=True)
class Compared:
    """A table as it is compared: its rows with `id`, and its columns; samples show the `shown`."""

    table: Table
    rows: str
    columns: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


_OPEN = "SELECT t.key AS id, t.* FROM {{side}}_{name} t WHERE t.is_open"
_PLACED = (
    "SELECT DISTINCT concat(t.topic, '[', CAST(t.\"partition\" AS STRING), ']@',"
    ' CAST(t."offset" AS STRING), \' of \', CAST(t."timestamp" AS STRING)) AS id'
    " FROM {{side}}_{name} t"
)
_COMPARED_OTHERS = {
    "clients": Compared(CLIENTS, _OPEN, ("name", "email", "subscribed")),
    "exchanges": Compared(EXCHANGES, _OPEN, ("country",), ("country",)),
    "rejected": Compared(REJECTED_RECORDS, _PLACED),
}


Others = tuple[dict[str, Differences], dict[str, str], list[Row]]


def _compare_others(tables: Tables, old: Snapshot, new: Snapshot) -> Others:
    """Return how two views differ in each of OTHERS, or why one is not compared; and some of it."""
    found: dict[str, Differences] = {}
    not_compared: dict[str, str] = {}
    samples: list[Row] = []
    for name, what in _COMPARED_OTHERS.items():
        if why := _why_not(what.table, old) or _why_not(what.table, new):
            not_compared[name] = why
            continue
        columns = _id_and_values("id", what.columns)
        relation = what.rows.format(name=what.table.name)
        sql = compared_sql(relation, "id", _same_values(what.columns), columns)
        at = both(old, new, what.table)
        found[name], some = _differences(tables, sql, at, OTHER_SAMPLES)
        samples += [_other_sample(name, what, row) for row in some]
    return found, not_compared, samples


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


def _other_sample(name: str, what: Compared, row: Row) -> Row:
    """Return a row that differs: its id under the name of what it is, and what may be shown."""
    sample: Row = {OTHERS[name]: row["id"], "difference": row["difference"]}
    if row["difference"] == "changed":
        pairs = {column: (row[f"old_{column}"], row[f"new_{column}"]) for column in what.columns}
        sample["columns"] = [column for column, (was, is_) in pairs.items() if was != is_]
    return sample | {
        side: {column: row[f"{side}_{column}"] for column in what.shown} for side in SIDES
    }


def compare_open(
    tables: Tables, kafka: Kafka, now: datetime, number: int | None = None
) -> Difference:
    """Compare the tables that the open rebuild, of that number, has with those before it.

    At the newest snapshot that both have: of tables that are in use, the last one before they were.
    ShardpostError while they are being built.
    """
    newest, rebuild = snapshots.current(tables), registry.require_current(tables, number)
    standing = rebuild.standing(newest)
    if standing is Standing.BUILDING:
        raise ShardpostError(
            f"rebuild {rebuild.number} is {standing} ({rebuild.progress.summary()}): continue it"
            " with `shardpost rebuild start` and the same options"
        )

    def in_use_at(number: int) -> Snapshot:
        return newest if number == newest.number else snapshots.get(tables, number, now=now)

    candidate, standby = rebuild.candidate, rebuild.require_standby(newest)
    if standing is not Standing.IN_USE:
        return compare(tables, kafka, in_use_at(standby.number), standby)
    # Its tables with contacts are not read as they were before a client was erased.
    as_swapped = replace(candidate, erased_in=newest.erased_in)
    is_same = candidate.number == standby.number
    return compare(tables, kafka, standby, as_swapped if is_same else in_use_at(standby.number))
