"""Charts of what the watch has kept: values over time, as figures that page.js draws."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from shardpost.page.rendering import Visit

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
    return {"data": data, "layout": {"yaxis": axis, "xaxis": {"type": "date"}}}
