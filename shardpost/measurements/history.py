"""What was measured, as the table keeps it; no JVM."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.delta import row_files
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import exists, rows
from shardpost.delta.row_files import RowTable
from shardpost.delta.sql import text_literal
from shardpost.measurements.model.metrics import METRICS, Measure
from shardpost.measurements.model.tables import MEASUREMENTS
from shardpost.settings import Settings

RUN = "run"


def add(settings: Settings, measures: Iterable[Measure], at: datetime) -> None:
    """Add what was measured at a time; once a day, drop what is older than SHARDPOST_WATCH_DAYS."""
    run = int(at.timestamp())
    schema = arrow_schema(MEASUREMENTS)
    found = [
        {"run": run, "at": at, "name": one.name, "labels": _labels(one), "value": one.value}
        for one in measures
        if METRICS[one.name].is_kept
    ]
    oldest = int((at - timedelta(days=settings.watch_days)).timestamp())
    too_old = int((at - timedelta(days=settings.watch_days + 1)).timestamp())

    def change(table: RowTable) -> None:
        table.insert(pa.Table.from_pylist(found, schema))

    def drop(table: RowTable) -> None:
        old = [file for file in table.files if file.lowest < too_old]
        if old:
            read = (table.read(file) for file in old)
            table.replace(old, [rows.filter(pc.field(RUN) >= oldest) for rows in read])

    row_files.change(settings, MEASUREMENTS, RUN, change)
    row_files.change(settings, MEASUREMENTS, RUN, drop)


def values(
    settings: Settings, name: str, since: datetime, labels: dict[str, str] | None = None
) -> list[tuple[datetime, float]]:
    """Return (when, value) of a metric since then, oldest first; of one set of labels."""
    if not exists(settings, MEASUREMENTS):
        return []
    wanted = text_literal(json.dumps(labels or {}))
    sql = (
        f"SELECT at, value FROM measurements WHERE run >= {int(since.timestamp())}"  # noqa: S608
        f" AND name = {text_literal(name)} AND labels = {wanted} ORDER BY run"
    )
    return [(row["at"], row["value"]) for row in rows(settings, sql, {MEASUREMENTS: None})]


def last_values(settings: Settings, source: str, name: str) -> list[tuple[dict[str, str], float]]:
    """Return (labels, value) of a metric, as of the last look that could measure its source."""
    if not exists(settings, MEASUREMENTS):
        return []
    up = text_literal(json.dumps({"source": source}))
    runs = (
        "SELECT max(run) AS run FROM measurements"  # noqa: S608
        f" WHERE name = 'source_up' AND labels = {up} AND value = 1"
    )
    [last] = rows(settings, runs, {MEASUREMENTS: None})
    if last["run"] is None:
        return []
    sql = (
        f"SELECT labels, value FROM measurements WHERE run = {last['run']}"  # noqa: S608
        f" AND name = {text_literal(name)}"
    )
    found = rows(settings, sql, {MEASUREMENTS: None})
    return [(json.loads(row["labels"]), row["value"]) for row in found]


def _labels(measure: Measure) -> str:
    return json.dumps(dict(measure.labels))
