"""The tables of firing conditions and of measurements, read and written without a JVM."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.alerts.model.alert import ALERTS, Firing
from shardpost.alerts.model.metrics import MEASUREMENTS, METRICS, Measure
from shardpost.delta import row_files
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import rows, select
from shardpost.delta.row_files import RowTable
from shardpost.delta.snapshot import MOST_AHEAD
from shardpost.delta.storage import exists
from shardpost.delta.table import text_literal
from shardpost.delta.typed_rows import from_row, to_row
from shardpost.instants import old_before
from shardpost.settings import Settings

RUN = "run"


def list_firing(settings: Settings) -> list[Firing]:
    """Return the conditions that are known to fire, or to have ended untold; and those silenced."""
    return select(settings, ALERTS, Firing, "ORDER BY rule, subject")


def store_firing(
    settings: Settings, before: Iterable[Firing], after: Iterable[Firing], at: datetime
) -> None:
    """Store what changed from one list to the other; what others stored meanwhile stays."""
    old, new = ({one.condition.key: one for one in firing} for firing in (before, after))
    run = {RUN: int(at.timestamp())}

    def change(table: RowTable) -> None:
        rows = [row for file in table.files for row in table.read(file).to_pylist()]
        stored = {one.condition.key: one for one in (from_row(Firing, row) for row in rows)}
        kept = {key: one for key, one in stored.items() if key not in old or key in new}
        kept |= {key: one for key, one in new.items() if one != old.get(key)}
        made = [run | to_row(one) for one in kept.values()]
        table.replace(table.files, [pa.Table.from_pylist(made, arrow_schema(ALERTS))])

    row_files.change(settings, ALERTS, RUN, change)


A_DAY = timedelta(days=1)


def add_measures(settings: Settings, measures: Iterable[Measure], at: datetime) -> None:
    """Add what was measured at a time; once a day, drop what is older than SHARDPOST_WATCH_DAYS."""
    run = {RUN: int(at.timestamp()), "at": at}
    kept = [run | to_row(measure) for measure in measures if METRICS[measure.name].is_kept]
    made = pa.Table.from_pylist(kept, arrow_schema(MEASUREMENTS))
    row_files.change(settings, MEASUREMENTS, RUN, lambda table: table.insert(made))
    row_files.change(settings, MEASUREMENTS, RUN, lambda table: _drop_old(settings, table, at))


def past_values(
    settings: Settings,
    name: str,
    since: datetime,
    until: datetime,
    labels: dict[str, str] | None = None,
) -> list[tuple[datetime, float]]:
    """Return (when, value) of a metric between two times, oldest first; of one set of labels."""
    if not exists(settings, MEASUREMENTS):
        return []
    wanted = text_literal(json.dumps(labels or {}))
    sql = (
        f"SELECT at, value FROM measurements WHERE run >= {int(since.timestamp())}"  # noqa: S608
        f" AND run <= {_latest_run(until)}"
        f" AND name = {text_literal(name)} AND labels = {wanted} ORDER BY run"
    )
    return [(row["at"], row["value"]) for row in rows(settings, sql, {MEASUREMENTS: None})]


def last_values(
    settings: Settings, source: str, name: str, until: datetime
) -> list[tuple[dict[str, str], float]]:
    """Return (labels, value) of a metric, as of the last look until then that had its source."""
    if not exists(settings, MEASUREMENTS):
        return []
    up = text_literal(json.dumps({"source": source}))
    runs = (
        f"SELECT max(run) AS run FROM measurements WHERE run <= {_latest_run(until)}"  # noqa: S608
        f" AND name = 'source_up' AND labels = {up} AND value = 1"
    )
    [last] = rows(settings, runs, {MEASUREMENTS: None})
    if last["run"] is None:
        return []
    sql = (
        f"SELECT labels, value FROM measurements WHERE run = {last['run']}"  # noqa: S608
        f" AND name = {text_literal(name)}"
    )
    last_rows = rows(settings, sql, {MEASUREMENTS: None})
    return [(json.loads(row["labels"]), row["value"]) for row in last_rows]


def _drop_old(settings: Settings, table: RowTable, now: datetime) -> None:
    """Drop what is older than SHARDPOST_WATCH_DAYS, once there is what is a day older than that.

    By the looks, and not by the clock alone.
    """
    age = timedelta(days=settings.watch_days)
    by_clock = (now - age).timestamp()
    if not any(file.lowest < by_clock - A_DAY.total_seconds() for file in table.files):
        return
    runs = rows(settings, "SELECT DISTINCT run FROM measurements", {MEASUREMENTS: None})
    looks = [datetime.fromtimestamp(row["run"], UTC) for row in runs]
    oldest = old_before(looks, now, age, A_DAY)
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
