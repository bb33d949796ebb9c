"""The two sides of a rebuild, compared key by key at the same offsets, by SQL; no JVM.

Both are committed versions, whose files never change: so it does not matter what comes meanwhile.
Contacts are counted, and samples say which columns differ, not what is in them: a sample gets into
logs, where no erasure finds it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from shardpost.delta.query import OpenedTables, rows, version_at
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.delta.table import Table, Version, text_literal
from shardpost.holders.model import view_tables as t
from shardpost.kafka.kafka import Kafka
from shardpost.rebuilds.model.difference import OTHERS, Difference, Differences

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
SAMPLES, OTHER_SAMPLES = (7, 20), (5, 15)  # of each kind of difference, and in all
MOST_LISTED = 200  # positions whose records are looked up


VALUES = ("client", "ticker", "amount", "exchange")
_RECORD = (*VALUES, '"partition"', "offset", "timestamp")
_HOLDING = "SELECT * FROM {{side}}_share_holders WHERE cardinality(positions) > 0 AND {which}"


@dataclass(frozen=True)
class _Views:
    tables: Tables
    kafka: Kafka
    old: Snapshot
    new: Snapshot

    def differences(
        self, sql: str, table: Table, samples: tuple[int, int] = SAMPLES
    ) -> tuple[Differences, list[Row]]:
        """Return how many keys are equal and not, and some rows; `sql` has the key as `id`."""
        opened = OpenedTables(self.tables, both(self.old, self.new, table))
        counts = opened.rows(f"{sql} {_COUNTS}")
        found = Differences(**{row["difference"]: row["n"] for row in counts})
        of_each, most = samples
        some = f"{sql} {_SOME.format(of_each=of_each, most=most).strip()}"
        return found, opened.rows(some) if found.different else []

    def holder_samples(self, changed: Iterable[Row]) -> list[Row]:
        """Return clients whose list changed, with the records of what only one side has."""
        in_one = {row["id"]: {*(row["old"] or ())} ^ {*(row["new"] or ())} for row in changed}
        ids = sorted({position for positions in in_one.values() for position in positions})
        records = self.records(ids[:MOST_LISTED])
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

    def records(self, positions: Iterable[str]) -> dict[str, list[Row]]:
        """Return the records that the sides have of positions, with the country of their exchange.

        `country_by` is where the record is that says that country.
        """
        listed = ", ".join(f"({text_literal(position)})" for position in positions)
        if not listed:
            return {}
        records: dict[str, list[Row]] = {}
        for side, view in zip(SIDES, (self.old, self.new), strict=True):
            sql = (
                f"SELECT p.key, {', '.join(f'p.{name}' for name in _RECORD)}, e.country,"  # noqa: S608
                ' e."partition" AS e_partition, e."offset" AS e_offset'
                f" FROM {side}_positions p LEFT JOIN {side}_exchanges e"
                " ON p.exchange = e.key AND e.is_open"
                f" WHERE p.is_open AND p.key IN (SELECT v.column1 FROM (VALUES {listed}) v)"
            )
            for row in rows(self.tables, sql, _of_side(side, view, t.POSITIONS, t.EXCHANGES)):
                topics = self.kafka.topic("positions"), self.kafka.topic("exchanges")
                record = {"position": row["key"], "topic": topics[0], "in": side}
                record |= {name: row[name] for name in (*VALUES, "country", "partition", "offset")}
                record["timestamp"] = row["timestamp"].isoformat()
                by = {"partition": row["e_partition"], "offset": row["e_offset"]}
                is_known = row["e_offset"] is not None
                record["country_by"] = {"topic": topics[1], **by} if is_known else None
                of_both = records.setdefault(row["key"], [])
                if of_both and of_both[0] | {"in": side} == record:
                    of_both[0]["in"] = "both"
                else:
                    of_both.append(record)
        return records

    def others(self) -> tuple[dict[str, Differences], dict[str, str], list[Row]]:
        """Return the differences in each of OTHERS, or why it is not compared; and samples."""
        found, not_compared, samples = dict[str, Differences](), dict[str, str](), list[Row]()
        for name, what in _COMPARED_OTHERS.items():
            if why := _why_not(what.table, self.old) or _why_not(what.table, self.new):
                not_compared[name] = why
                continue
            columns = _id_and_values("id", what.columns)
            relation = what.rows.format(name=what.table.name)
            sql = compared_sql(relation, "id", _same_values(what.columns), columns)
            found[name], some = self.differences(sql, what.table, OTHER_SAMPLES)
            for row in some:
                # Its id under the name of what it is, and what may be shown.
                sample: Row = {OTHERS[name]: row["id"], "difference": row["difference"]}
                if row["difference"] == "changed":
                    pairs = ((one, row[f"old_{one}"], row[f"new_{one}"]) for one in what.columns)
                    sample["columns"] = [one for one, was, is_ in pairs if was != is_]
                for side in SIDES:
                    sample[side] = {column: row[f"{side}_{column}"] for column in what.shown}
                samples.append(sample)
        return found, not_compared, samples


def compare(tables: Tables, kafka: Kafka, old: Snapshot, new: Snapshot) -> Difference:
    """Return the differences of two views, with samples."""
    views, columns = _Views(tables, kafka, old, new), _id_and_values("key", _RECORD)
    open_ = "SELECT * FROM {side}_positions WHERE is_open"
    sql = compared_sql(open_, "key", _same_values(VALUES), columns)
    positions, changed = views.differences(sql, t.POSITIONS)
    topic = kafka.topic("positions")
    samples = [
        {"position": row["id"], "difference": row["difference"]}
        | {side: _record(row, side, topic) for side in SIDES}
        for row in changed
    ]
    sql = holders_sql("COALESCE(o.client, n.client) AS id, o.positions AS old, n.positions AS new")
    holders, changed = views.differences(sql, t.SHARE_HOLDERS)
    samples += views.holder_samples(changed)
    others, not_compared, of_others = views.others()
    samples += of_others
    return Difference(_side(old), _side(new), positions, holders, samples, others, not_compared)


def holders_sql(columns: str, which: str = "true") -> str:
    """Return the `compared_sql` of the holders of two views; `difference` is a column, too."""
    relation = _HOLDING.format(which=which)
    return compared_sql(relation, "client", "o.positions = n.positions", columns)


def _record(row: Row, side: str, topic: str) -> Row | None:
    if row[f"{side}_offset"] is None:
        return None
    record = {name: row[f"{side}_{name}"] for name in (*VALUES, "partition", "offset")}
    return record | {"topic": topic, "timestamp": row[f"{side}_timestamp"].isoformat()}


def _side(view: Snapshot) -> Row:
    tables = (t.POSITIONS, t.SHARE_HOLDERS)
    return {
        "snapshot": view.number,
        **vars(view.rule),
        "tables": {view.located(table).path: view.tables[table.name] for table in tables},
    }


class Compared(NamedTuple):
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
    "clients": Compared(t.CLIENTS, _OPEN, ("name", "email", "subscribed")),
    "exchanges": Compared(t.EXCHANGES, _OPEN, ("country",), ("country",)),
    "rejected": Compared(t.REJECTED_RECORDS, _PLACED),
}


def _why_not(table: Table, view: Snapshot) -> str | None:
    """Return why a table of a view is not read; None if it may be."""
    if table.name not in view.tables:
        return f"snapshot {view.number} has no table {table.name}"
    if table.contacts and not view.has_contacts:
        return (
            f"a client was erased in snapshot {view.erased_in}: older contacts, as of snapshot"
            f" {view.number}, are no longer read"
        )
    return None
