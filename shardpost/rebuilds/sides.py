"""The two sides of a rebuild, compared key by key at the same offsets; no JVM.

Both are committed versions, whose files never change: so it does not matter what comes meanwhile.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from shardpost.delta import snapshots
from shardpost.delta.object_store import Tables
from shardpost.delta.query import rows
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import text_literal
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import EXCHANGES, POSITIONS, SHARE_HOLDERS
from shardpost.installation import Installation
from shardpost.rebuilds import store
from shardpost.rebuilds.comparison import (
    SIDES,
    both,
    compare_others,
    compared_sql,
    counted,
    id_and_values,
    of_side,
    same_values,
    some_sql,
)
from shardpost.rebuilds.model.difference import Difference
from shardpost.rebuilds.model.rebuild import Rebuild, Standing

SAMPLES = 20
OF_EACH_KIND = 7
VALUES = ("client", "ticker", "amount", "exchange")
_RECORD = (*VALUES, '"partition"', "offset", "timestamp")

_OPEN = "SELECT * FROM {side}_positions WHERE is_open"
_HOLDING = "SELECT * FROM {{side}}_share_holders WHERE cardinality(positions) > 0 AND {which}"


def compare(installation: Installation, old: Snapshot, new: Snapshot) -> Difference:
    """Return what two views differ in, with some samples."""
    of_positions = counted(installation.tables, _positions_sql("o.key"), both(old, new, POSITIONS))
    of_holders = counted(
        installation.tables, holders_sql("o.client"), both(old, new, SHARE_HOLDERS)
    )
    others, of_others = compare_others(installation.tables, old, new)
    samples: list[dict[str, Any]] = []
    if of_positions.different:
        samples += _sampled_positions(installation, old, new)
    if of_holders.different:
        samples += _sampled_holders(installation, old, new)
    samples += of_others
    return Difference(_side(old), _side(new), of_positions, of_holders, samples, others)


def holders_sql(columns: str, which: str = "true") -> str:
    """Return the start of a query, with the relation `compared` of the holders of two views.

    It has `columns` of o, the old ones, and n, the new ones, and their `difference`.
    """
    relation = _HOLDING.format(which=which)
    return compared_sql(relation, "client", "o.positions = n.positions", columns)


def _positions_sql(columns: str) -> str:
    return compared_sql(_OPEN, "key", same_values(VALUES), columns)


def _sampled_positions(
    installation: Installation, old: Snapshot, new: Snapshot
) -> list[dict[str, Any]]:
    columns = id_and_values("key", _RECORD)
    sql = some_sql(_positions_sql(columns), OF_EACH_KIND, SAMPLES)
    topic = installation.kafka.topic("positions")
    return [
        {
            "position": row["id"],
            "difference": row["difference"],
            **{side: _record(row, side, topic) for side in SIDES},
        }
        for row in rows(installation.tables, sql, both(old, new, POSITIONS))
    ]


def _record(row: dict[str, Any], side: str, topic: str) -> dict[str, Any] | None:
    if row[f"{side}_offset"] is None:
        return None
    values = {name: row[f"{side}_{name}"] for name in VALUES}
    place = {name: row[f"{side}_{name}"] for name in ("partition", "offset")}
    return values | {"topic": topic, **place, "timestamp": row[f"{side}_timestamp"].isoformat()}


def _sampled_holders(
    installation: Installation, old: Snapshot, new: Snapshot
) -> list[dict[str, Any]]:
    columns = "COALESCE(o.client, n.client) AS id, o.positions AS old, n.positions AS new"
    sql = some_sql(holders_sql(columns), OF_EACH_KIND, SAMPLES)
    changed = rows(installation.tables, sql, both(old, new, SHARE_HOLDERS))
    ids = {id_ for row in changed for id_ in _in_one(row)}
    records = _records(installation, old, new, sorted(ids)[: 10 * SAMPLES])
    return [
        {
            "client": row["id"],
            "difference": row["difference"],
            "old": row["old"] or [],
            "new": row["new"] or [],
            "records": [
                one
                for id_ in sorted(_in_one(row))
                for one in records.get(id_, ())
                if one["client"] == row["id"]
            ],
        }
        for row in changed
    ]


def _in_one(row: dict[str, Any]) -> set[str]:
    """Return the positions that only one side of a client's row has."""
    return {*(row["old"] or ())} ^ {*(row["new"] or ())}


def _records(
    installation: Installation, old: Snapshot, new: Snapshot, ids: Iterable[str]
) -> dict[str, list[dict[str, Any]]]:
    """Return the records that the sides have of positions, with the country of their exchange."""
    listed = ", ".join(f"({text_literal(id_)})" for id_ in ids)
    if not listed:
        return {}
    records: dict[str, list[dict[str, Any]]] = {}
    for side, view in zip(SIDES, (old, new), strict=True):
        sql = (
            f"SELECT p.key, {', '.join(f'p.{name}' for name in _RECORD)}, e.country,"  # noqa: S608
            ' e."partition" AS e_partition, e."offset" AS e_offset'
            f" FROM {side}_positions p LEFT JOIN {side}_exchanges e"
            " ON p.exchange = e.key AND e.is_open"
            f" WHERE p.is_open AND p.key IN (SELECT v.column1 FROM (VALUES {listed}) v)"
        )
        for row in rows(installation.tables, sql, of_side(side, view, POSITIONS, EXCHANGES)):
            one = {"position": row["key"], "topic": installation.kafka.topic("positions")}
            one |= {name: row[name] for name in (*VALUES, "country", "partition", "offset")}
            one["timestamp"] = row["timestamp"].isoformat()
            one["country_by"] = _place_of_country(row, installation.kafka.topic("exchanges"))
            of_both = records.setdefault(row["key"], [])
            if of_both and of_both[0] | {"in": side} == one | {"in": side}:
                of_both[0]["in"] = "both"
            else:
                of_both.append(one | {"in": side})
    return records


def _place_of_country(row: dict[str, Any], topic: str) -> dict[str, Any] | None:
    """Return where the record is that says the country of the exchange."""
    if row["e_offset"] is None:
        return None
    return {"topic": topic, "partition": row["e_partition"], "offset": row["e_offset"]}


def _side(view: Snapshot) -> dict[str, Any]:
    tables = (POSITIONS, SHARE_HOLDERS)
    return {
        "snapshot": view.number,
        "country": view.country,
        "tables": {view.located(table).path: view.tables[table.name] for table in tables},
    }


def needs_top_up(tables: Tables) -> bool:
    """Tell whether records came that new tables, which are not in use, have not."""
    newest, rebuild = snapshots.current(tables), store.require_current(tables)
    if rebuild.standing(newest) not in (Standing.READY, Standing.ROLLED_BACK):
        return False
    return rebuild.candidate.number != newest.number


def compared(installation: Installation, now: datetime) -> Difference:
    """Compare the tables that the open rebuild has with those before it.

    At the newest snapshot that both have: of tables that are in use, the last one before they were.
    ShardpostError while they are being built.
    """
    tables = installation.tables
    newest, rebuild = snapshots.current(tables), store.require_current(tables)
    standing = rebuild.standing(newest)
    if standing is Standing.BUILDING:
        raise ShardpostError(
            f"rebuild {rebuild.number} is {standing} ({rebuild.progress.summary()}): continue it"
            " with `shardpost rebuild start` and the same options"
        )
    candidate, former = rebuild.candidate, rebuild.former
    if standing is Standing.IN_USE:
        if former is None:
            raise unknown_former(rebuild)
        is_same = candidate.number == former.number
        # Its tables with contacts are not read as they were before a client was erased.
        as_swapped = replace(candidate, erased_in=newest.erased_in)
        new = as_swapped if is_same else _in_use_at(tables, newest, former.number, now)
        return compare(installation, former, new)
    old = _in_use_at(tables, newest, candidate.number, now)
    return compare(installation, old, candidate)


def unknown_former(rebuild: Rebuild) -> ShardpostError:
    """Return what is wrong where a rebuild is in use and does not know the tables before it.

    So it is in a copy of the tables that was made in the moment of a swap.
    """
    return ShardpostError(
        f"rebuild {rebuild.number}: the previous tables are not recorded: they can be neither"
        " compared nor put back in use; `shardpost rebuild drop` drops them"
    )


def _in_use_at(tables: Tables, newest: Snapshot, number: int, now: datetime) -> Snapshot:
    if number == newest.number:
        return newest
    return snapshots.get(tables, number, now=now)
