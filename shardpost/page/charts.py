"""Charts of what the watch has kept: values over time, as figures that page.js draws."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from shardpost.page.rendering import ROWS_OF_A_PAGE, Listing, Visit

if TYPE_CHECKING:
    from shardpost.alerts.history import Wanted

# Days that are offered.
PERIODS = (1, 7, 30, 90)
Points = Sequence[tuple[datetime, float]]


def over(visit: Visit, days: int, wanted: "Wanted", label: str) -> dict[str, Points]:
    """Return {label: its values in the last days} of a metric that one label tells apart."""
    from shardpost.alerts.history import series
    from shardpost.delta.query import table_errors

    since = visit.now - timedelta(days=days)
    with table_errors():
        found = series(visit.settings, wanted, since, visit.now)
    return {json.loads(labels)[label]: points for labels, points in found.items()}


def chart_of(lines: Mapping[str, Points], unit: str) -> dict[str, Any]:
    """Return a figure with a line for each name."""
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": [at.astimezone(UTC).isoformat() for at, _ in points],
            "y": [value for _, value in points],
        }
        for name, points in lines.items()
    ]
    axis = {"title": {"text": unit}, "rangemode": "tozero"}
    above = {"orientation": "h", "y": 1.15}
    return {"data": data, "layout": {"yaxis": axis, "xaxis": {"type": "date"}, "legend": above}}


def numbers_of(lines: Mapping[str, Points]) -> Listing:
    """Return the same as a table, the newest first: every so manieth value, so that all fit."""
    times = sorted({at for points in lines.values() for at, _ in points}, reverse=True)
    values = {name: dict(points) for name, points in lines.items()}
    shown = times[:: -(-len(times) // ROWS_OF_A_PAGE) or 1]
    rows = [(at, *(_rounded(one.get(at)) for one in values.values())) for at in shown]
    return Listing(("when", *values), rows)


def _rounded(value: float | None) -> str | int | None:
    return value if value is None else int(value) if value >= 1000 else f"{value:g}"
