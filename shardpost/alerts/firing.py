"""What needs a person, and what people were told of it, as the table `alerts` keeps it; no JVM."""

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from shardpost.alerts.model.alert import Condition, Severity
from shardpost.alerts.model.alerting import Firing
from shardpost.alerts.model.tables import ALERTS
from shardpost.delta import row_files
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.query import exists, rows
from shardpost.delta.row_files import RowTable
from shardpost.settings import Settings

RUN = "run"


def list_all(settings: Settings) -> list[Firing]:
    """Return what needed a person when it was looked at last."""
    if not exists(settings, ALERTS):
        return []
    sql = "SELECT * FROM alerts ORDER BY rule, subject"
    return [
        Firing(
            Condition(
                *(row["rule"], row["subject"], Severity(row["severity"])),
                *(row["text"], row["meaning"], row["source"]),
            ),
            *(row["since"], row["told_at"], row["ended_at"]),
        )
        for row in rows(settings, sql, {ALERTS: None})
    ]


def replace_all(settings: Settings, found: Sequence[Firing], at: datetime) -> None:
    """Put what needs a person now in the place of what did before."""
    run = int(at.timestamp())
    columns = [{"run": run} | _columns(one) for one in found]
    made = pa.Table.from_pylist(columns, arrow_schema(ALERTS))

    def change(table: RowTable) -> None:
        table.replace(table.files, [made])

    row_files.change(settings, ALERTS, RUN, change)


def _columns(one: Firing) -> dict[str, object]:
    times = {"since": one.since, "told_at": one.told_at, "ended_at": one.ended_at}
    return vars(one.condition) | {"severity": str(one.condition.severity)} | times
