"""The plan of an import: what would be written, what is rejected, and why it may be refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shardpost.position_import.model.columns import POSITION_ID

# So many rejected rows are listed, and so many ids of each change.
MOST_LISTED = 1000
MOST_SAMPLES = 5


class Change(StrEnum):
    """What the list says of one position, compared with what is open."""

    NEW = "new"
    CHANGED = "changed"
    CLOSED = "closed"
    EQUAL = "equal"
    LEFT = "left"  # its row is rejected: it stays what it is


WRITTEN = (Change.NEW, Change.CHANGED, Change.CLOSED)


@dataclass(frozen=True)
class RejectedRow:
    """A row that changes nothing, with its values as they were read, and why."""

    reason: str
    row: Mapping[str, str | None]

    def as_json(self) -> dict[str, Any]:
        """Return it in the form of `import --json`."""
        return {"reason": self.reason, "row": dict(self.row)}


@dataclass(frozen=True)
class Plan:
    """What an import would do.

    `rows` of the list, of which `rejected_rows` are rejected (`rejected` are the first of them) and
    `without_id` have no id that can be read; `counts` of positions; `samples` of their ids;
    `open_positions` before it.
    """

    rows: int
    counts: Mapping[Change, int]
    open_positions: int
    samples: Mapping[Change, tuple[str, ...]]
    rejected: tuple[RejectedRow, ...] = ()
    rejected_rows: int = 0
    without_id: int = 0
    ignored: tuple[str, ...] = ()

    def count(self, change: Change) -> int:
        """Return how many positions it is of."""
        return self.counts.get(change, 0)

    @property
    def records(self) -> int:
        """How many records would be written."""
        return sum(map(self.count, WRITTEN))

    def refusal(self, max_closed: float) -> str | None:
        """Return why nothing may be written; `max_closed` is a share of the open positions."""
        closed = self.count(Change.CLOSED)
        if not closed:
            return None
        would = f"{closed} of {self.open_positions} open positions would close"
        if not self.rows:
            return f"{would}, since the list has no rows: a list that is empty closes nothing"
        if self.without_id:
            return (
                f"{would}, but {self.without_id} rows have no {POSITION_ID} that can be read, and"
                " may be those: correct the rows"
            )
        if closed > max_closed * self.open_positions:
            share = closed / self.open_positions
            return (
                f"{would} ({_percent(share)}), more than {_percent(max_closed)}: if they are to be"
                f" closed, allow it with --max-closed {_percent(share)}"
            )
        return None

    def as_json(self) -> dict[str, Any]:
        """Return it as the part of `import --json` that is the plan."""
        counts = {str(change): self.count(change) for change in (*WRITTEN, Change.EQUAL)}
        return {
            "rows": self.rows,
            **counts,
            "left": self.count(Change.LEFT),
            "open": self.open_positions,
            "rejected": [row.as_json() for row in self.rejected],
            "rejected_rows": self.rejected_rows,
            "without_id": self.without_id,
            "ignored": list(self.ignored),
            "samples": {str(change): list(ids) for change, ids in self.samples.items() if ids},
        }


def _percent(share: float) -> str:
    """Return a share as a percentage that is not below it."""
    text = f"{share * 100:.2f}"
    if float(text) < share * 100:
        text = f"{share * 100 + 0.005:.2f}"
    return f"{text.rstrip('0').rstrip('.')}%"
