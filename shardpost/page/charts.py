"""Charts of what the watch has kept: values over time, as figures that page.js draws."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from shardpost.page.rendering import ROWS_OF_A_PAGE, Listing
from shardpost.page.request import PageRequest

# Days that are offered.
PERIODS = (1, 7, 30, 90)
# Of so few each is marked: a line through a single one is not seen.
FEW_POINTS = 30
Points = Sequence[tuple[datetime, float]]


def since(visit: PageRequest, days: int) -> datetime:
    """Return when a chart of so many days begins."""
    return visit.now - timedelta(days=days)


def chart_of(lines: Mapping[str, Points], unit: str) -> dict[str, Any]:
    """Return a figure with a line for each name."""
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers" if len(points) <= FEW_POINTS else "lines",
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
