"""What one look found: values, and what needs a person."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from shardpost.alerts.model.alert import Condition
from shardpost.measurements.model.metrics import Measure

Context = TypeVar("Context")


@dataclass
class Found:
    """Values of metrics, and conditions that need a person.

    Of the sources in `unmeasured` not all is known: what was wrong before may still be.
    """

    measures: list[Measure] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    unmeasured: set[str] = field(default_factory=set)

    def measure(self, name: str, value: float, **labels: str) -> None:
        """Add a value."""
        self.measures.append(Measure(name, float(value), labels))

    def age(self, name: str, since: datetime, now: datetime, **labels: str) -> float:
        """Add how long ago something was, in seconds, and return it; 0 of what is to come."""
        seconds = max(0.0, (now - since).total_seconds())
        self.measure(name, seconds, **labels)
        return seconds

    def add(self, other: "Found") -> None:
        """Add all that something else found."""
        self.measures += other.measures
        self.conditions += other.conditions
        self.unmeasured |= other.unmeasured


@dataclass(frozen=True)
class Source(Generic[Context]):
    """A thing that is looked at: its name, and how it is looked at."""

    name: str
    look: Callable[[Context, datetime], Found]
