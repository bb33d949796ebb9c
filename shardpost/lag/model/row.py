"""One line of `shardpost lag`."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LagRow:
    """How far a group is behind in one partition, and when it loses data.

    `committed` is None if it has committed nothing, `end` (the high watermark) if nobody says it;
    then the numbers after them are None as well. `seconds_to_loss` is None where nothing can be
    lost; 0 where data is lost already, or may be at any moment.
    """

    group: str
    topic: str
    partition: int
    committed: int | None
    end: int | None
    records_behind: int | None
    seconds_behind: float | None
    seconds_to_loss: float | None
    reason: str

    def as_json(self) -> dict[str, Any]:
        """Return the form of `lag --json`."""
        return dict(vars(self))

    def loses_within(self, seconds: float) -> bool:
        """Tell whether it has lost data, or will within so many seconds."""
        return self.seconds_to_loss is not None and self.seconds_to_loss <= seconds


def by_time_to_loss(row: LagRow) -> tuple[float, str, str, int]:
    """Return the sort key of rows: what is lost first comes first, what is never lost last."""
    never = float("inf")
    seconds = never if row.seconds_to_loss is None else row.seconds_to_loss
    return seconds, row.group, row.topic, row.partition
