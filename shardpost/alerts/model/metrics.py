"""Every metric of metrics.toml: its name, unit, labels and meaning; and the table of the values.

Names and units by the conventions of OpenMetrics; all are gauges.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files

from shardpost.delta.table import Json, Table, columns

PREFIX = "shardpost_"
UNITS = ("seconds", "bytes")


@dataclass(frozen=True)
class Metric:
    """One metric; the history has those that are kept."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ()
    is_kept: bool = True

    @property
    def unit(self) -> str:
        """The last word of its name, "" where it counts things."""
        return next((unit for unit in UNITS if self.name.endswith(f"_{unit}")), "")


_DECLARED = tomllib.loads(files(__package__).joinpath("metrics.toml").read_text())
METRICS = {
    name: Metric(name, **given | {"labels": tuple(given.get("labels", ()))})
    for name, given in _DECLARED.items()
}


@dataclass(frozen=True)
class Measure:
    """One value of a metric; its labels are those that the metric declares."""

    name: str
    value: float
    labels: Json[Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if tuple(self.labels) != METRICS[self.name].labels:
            raise ValueError(
                f"{self.name}: expected labels {METRICS[self.name].labels}, found {self.labels}"
            )


# A row for each value of each metric.
MEASUREMENTS = Table(
    "measurements",
    columns("run BIGINT, at TIMESTAMP, name STRING, labels STRING, value DOUBLE"),
    comments={
        "run": "when it was measured, in seconds since 1970",
        "name": "metric without `shardpost_`",
        "labels": "JSON",
    },
)
