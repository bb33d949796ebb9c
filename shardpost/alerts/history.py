"""The tables of firing conditions and of measurements, read and written without a JVM."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.alerts.model.alert import ALERTS, Firing
from shardpost.alerts.model.metrics import MEASUREMENTS, METRICS, Measure
from shardpost.delta import table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import OpenedTables, rows, select
from shardpost.delta.snapshot import MOST_AHEAD
from shardpost.delta.storage import Tables, exists
from shardpost.delta.table import from_row, text_literal, to_row
from shardpost.instants import old_before

RUN = "run"


def list_firing(tables: Tables) -> list[Firing]:
    """Return the conditions that fire, or whose end was not sent yet; and silenced conditions."""
    return select(tables, ALERTS, Firing, "ORDER BY rule, subject")


def store_firing(
    tables: Tables, before: Iterable[Firing], after: Iterable[Firing], at: datetime
) -> None:
    """Store what changed from one list to the other; what others stored meanwhile stays."""
    old, new = ({one.condition.key: one for one in firing} for firing in (before, after))
    run = {RUN: int(at.timestamp())}

    def change(table: table_log.RowTable) -> None:
        rows = [row for file in table.files for row in table.read(file).to_pylist()]
        stored = {one.condition.key: one for one in (from_row(Firing, row) for row in rows)}
        kept = {key: one for key, one in stored.items() if key not in old or key in new}
        kept |= {key: one for key, one in new.items() if one != old.get(key)}
        made = [run | to_row(one) for one in kept.values()]
        table.replace(table.files, [pa.Table.from_pylist(made, arrow_schema(ALERTS))])

    table_log.change(tables, ALERTS, RUN, change)


A_DAY = timedelta(days=1)
KEPT_FOR = timedelta(days=90)


def add_measures(tables: Tables, measures: Iterable[Measure], at: datetime) -> None:
    """Add what was measured at a time; once a day, drop what is older than KEPT_FOR."""
    run = {RUN: int(at.timestamp()), "at": at}
    kept = [run | to_row(measure) for measure in measures if METRICS[measure.name].is_kept]
    made = pa.Table.from_pylist(kept, arrow_schema(MEASUREMENTS))
    table_log.change(tables, MEASUREMENTS, RUN, lambda table: table.insert(made))
    table_log.change(tables, MEASUREMENTS, RUN, lambda table: _drop_old(tables, table, at))


@dataclass(frozen=True)
class LastValues:
    """What the last look that had a source found there: when, and (name, labels, value)."""

    at: datetime
    values: Sequence[tuple[str, Mapping[str, str], float]] = ()

    def of(self, name: str) -> list[tuple[Mapping[str, str], float]]:
        """Return (labels, value) of a metric."""
        return [(labels, value) for found, labels, value in self.values if found == name]

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return {label: value} of a metric."""
        return {labels[label]: value for labels, value in self.of(name)}

    def one(self, name: str) -> float | None:
        """Return the value of a metric without labels; None if it has none."""
        return next((value for _, value in self.of(name)), None)


# Who has not looked for longer looks no more.
LOOKS_WITHIN = timedelta(days=14)


def last_looks(tables: Tables, until: datetime) -> dict[str, LastValues]:
    """Return {source: what was found by the last look until then that had it}, of two weeks."""
    if not exists(tables, MEASUREMENTS):
        return {}
    bounds = f"run >= {int((until - LOOKS_WITHIN).timestamp())} AND run <= {_latest_run(until)}"
    up = (
        f"SELECT labels, max(run) AS run FROM measurements WHERE {bounds}"  # noqa: S608 - numbers
        " AND name = 'source_up' AND value = 1 GROUP BY labels"
    )
    opened = OpenedTables(tables, {MEASUREMENTS: None})
    runs = {json.loads(row["labels"])["source"]: row["run"] for row in opened.rows(up)}
    if not runs:
        return {}
    listed = ", ".join(map(str, sorted({*runs.values()})))
    sql = f"SELECT run, name, labels, value FROM measurements WHERE run IN ({listed})"  # noqa: S608
    by_run: dict[int, list[tuple[str, Mapping[str, str], float]]] = defaultdict(list)
    for row in opened.rows(sql):
        by_run[row["run"]].append((row["name"], json.loads(row["labels"]), row["value"]))
    return {
        source: LastValues(datetime.fromtimestamp(run, UTC), by_run[run])
        for source, run in runs.items()
    }


def values_over(
    tables: Tables, name: str, since: datetime, until: datetime
) -> list[tuple[datetime, float]]:
    """Return the values of a metric at each look between two times, oldest first."""
    if not exists(tables, MEASUREMENTS):
        return []
    first, last = int(since.timestamp()), _latest_run(until)
    sql = (
        f"SELECT run, value FROM measurements WHERE name = {text_literal(name)}"  # noqa: S608
        f" AND run BETWEEN {first} AND {last} ORDER BY run"
    )
    found = rows(tables, sql, {MEASUREMENTS: None})
    return [(datetime.fromtimestamp(row["run"], UTC), row["value"]) for row in found]


def _drop_old(tables: Tables, table: table_log.RowTable, now: datetime) -> None:
    """Drop what is older than KEPT_FOR, once there is what is a day older than that.

    By the looks, and not by the clock alone.
    """
    by_clock = (now - KEPT_FOR).timestamp()
    if not any(file.lowest < by_clock - A_DAY.total_seconds() for file in table.files):
        return
    runs = rows(tables, "SELECT DISTINCT run FROM measurements", {MEASUREMENTS: None})
    looks = [datetime.fromtimestamp(row["run"], UTC) for row in runs]
    oldest = old_before(looks, now, KEPT_FOR, A_DAY)
    if oldest is None:
        return
    old = [file for file in table.files if file.lowest < (oldest - A_DAY).timestamp()]
    if old:
        read = (table.read(file) for file in old)
        kept = pc.field(RUN) >= int(oldest.timestamp())
        table.replace(old, [part.filter(kept) for part in read])


def _latest_run(until: datetime) -> int:
    """Return the last run that counts as one until then: what is later has a wrong clock."""
    return int((until + MOST_AHEAD).timestamp())
