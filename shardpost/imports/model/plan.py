"""The plan of an import: what would be written or rejected, and why it may be refused."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shardpost.delta.snapshot import UnknownExchanges
from shardpost.imports.model.list_format import TARGETS, Target
from shardpost.values.holding_rule import COUNTRY_UNKNOWN
from shardpost.wording import counted

MOST_LISTED = 1000  # rejected rows
MOST_SAMPLES = 5  # ids of each change


class Change(StrEnum):
    """What the list says of one key, such as a position, compared with what is open."""

    NEW = "new"
    CHANGED = "changed"
    CLOSED = "closed"
    EQUAL = "equal"
    LEFT = "left"  # its row is rejected: it stays what it is
    NOT_LISTED = "not listed"  # in an increment: it stays, too


WRITTEN = (Change.NEW, Change.CHANGED, Change.CLOSED)
SHOWN = (*WRITTEN, Change.EQUAL)


@dataclass(frozen=True)
class Plan:
    """What an import would do.

    `rows` of the list, of which `rejected_rows` are rejected (`rejected` are the first of them,
    each with its `reason` and its `row`, as it was read) and `without_id` have no id that can be
    read; `counts` of keys; `samples` of them; how many were open before it (`open_positions`, or
    clients, or exchanges); `unknown_exchanges` has positions of the list on exchanges without a
    country, of the largest of these. Of an increment, `watermark` is where the next one begins.
    """

    rows: int
    counts: Mapping[Change, int]
    open_positions: int
    samples: Mapping[Change, tuple[str, ...]]
    rejected: tuple[Mapping[str, Any], ...] = ()
    rejected_rows: int = 0
    without_id: int = 0
    ignored: tuple[str, ...] = ()
    unknown_exchanges: Mapping[str, int] = field(default_factory=dict)
    target: Target = TARGETS["positions"]
    watermark: str | None = None

    def count(self, change: Change) -> int:
        """Return the number of keys."""
        return self.counts.get(change, 0)

    @property
    def records(self) -> int:
        """The number of records to write."""
        return sum(map(self.count, WRITTEN))

    def refusal(self, max_closed: float) -> str | None:
        """Return why nothing may be written; `max_closed` is a share of what is open."""
        closed = self.count(Change.CLOSED)
        if not closed:
            return None
        would = f"{closed} of {self.open_positions} open {self.target.topic} would close"
        if not self.rows:
            return f"{would}, since the list has no rows: an empty list closes nothing"
        if self.without_id:
            rows = counted(self.without_id, "row has", "rows have")
            return (
                f"{would}, but {rows} no readable {self.target.key} and may be these"
                f" {self.target.topic}: correct the rows"
            )
        if closed > max_closed * self.open_positions:
            share = closed / self.open_positions
            return (
                f"{would} ({_percent(share)}), more than {_percent(max_closed)}: if this is"
                f" intended, allow it with --max-closed {_percent(share)}"
            )
        return None

    def as_json(self) -> dict[str, Any]:
        """Return it as the part of `import --json` that is the plan."""
        counts = {str(change): self.count(change) for change in SHOWN}
        return {
            "into": self.target.topic,
            "rows": self.rows,
            **counts,
            "left": self.count(Change.LEFT),
            "open": self.open_positions,
            "rejected": list(self.rejected),
            "rejected_rows": self.rejected_rows,
            "without_id": self.without_id,
            "ignored": list(self.ignored),
            "unknown_exchanges": dict(self.unknown_exchanges),
            "watermark": self.watermark,
            "samples": {str(change): list(ids) for change, ids in self.samples.items() if ids},
        }


def _percent(share: float) -> str:
    """Return a share as a percentage that is not below it."""
    text = f"{share * 100:.2f}"
    if float(text) < share * 100:
        text = f"{share * 100 + 0.005:.2f}"
    return f"{text.rstrip('0').rstrip('.')}%"


def summary(result: dict[str, Any]) -> Iterator[str]:
    """Yield lines about the list, its changes, and the outcome."""
    into = result["into"]
    yield f"import {result['import_id']}: {counted(result['rows'], 'row')} of {result['source']}"
    for change in SHOWN:
        ids = result["samples"].get(change, [])
        such = f"  such as {', '.join(ids)}" if ids else ""
        yield f"{change:<8}{result[change]:>10}{such}"
    if result["rejected_rows"]:
        left = counted(result["left"], f"open {into[:-1]} remains", f"open {into} remain")
        yield f"rejected{result['rejected_rows']:>10}  of the rows; {left}"
    if result["watermark"]:
        yield f"watermark {result['watermark']}: where the next increment begins"
    if not result["refused"]:
        yield _outcome(result)


def notes(result: dict[str, Any]) -> Iterator[str]:
    """Yield notes for a person."""
    if result["ignored"]:
        yield f"ignored columns: {', '.join(result['ignored'])}"
    if result["unknown_exchanges"]:
        unknown = UnknownExchanges.of(result["unknown_exchanges"])
        yield f"{unknown}: they would count {COUNTRY_UNKNOWN}"
    for found in result["rejected"]:
        row = ", ".join(f"{name} {value}" for name, value in found["row"].items() if value)
        yield f"rejected: {row or 'an empty row'}: {found['reason']}"
    if (more := result["rejected_rows"] - len(result["rejected"])) > 0:
        yield f"and {counted(more, 'more row is', 'more rows are')} rejected"


def _outcome(result: dict[str, Any]) -> str:
    records = sum(result[change] for change in WRITTEN)
    if before := result["applied_before"]:
        into = result["into"]
        differ = counted(records, f"{into[:-1]} differs", f"{into} differ")
        again = f"; {differ} since then: give another --id" if records else ""
        return f"applied already, at {before['at']} by {before['by']}{again}"
    if result["applied"]:
        compact = "; `shardpost compact` takes them into the tables" if records else ""
        return f"applied: {counted(result['written'], 'record')} written{compact}"
    to_do = f"to apply exactly this, add --apply --up-to {result['up_to']}"
    return f"{counted(records, 'record')} would be written; {to_do}"
