"""The plan of an import: columns, what would be written or rejected, and why it may be refused."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from shardpost.delta.snapshot import UnknownExchanges
from shardpost.errors import ShardpostError
from shardpost.holders.model.fields import POSITION_FIELDS, FieldType
from shardpost.wording import counted

POSITION_ID = "PositionId"
COLUMNS = (POSITION_ID, *(field.name for field in POSITION_FIELDS))
NUMBERS = frozenset(field.name for field in POSITION_FIELDS if field.type is FieldType.NUMBER)


class SourceColumn(NamedTuple):
    """A column of a list, and Spark's name for its type; of text files all are `string`."""

    name: str
    type: str = "string"


class FoundColumns(NamedTuple):
    """{a column: that of the list}, and the names of those that are ignored, in their order."""

    columns: dict[str, SourceColumn]
    ignored: tuple[str, ...]


_WHOLE = r"string|(var)?char\(\d+\)|(tiny|small|big)?int|decimal\(\d+,0\)"
_NUMBER = r"|float|double|decimal\(\d+,\d+\)|boolean"  # a row with true is rejected, not the list


def require_type(where: str, column: str, type_: str, found: str | None = None) -> None:
    """Refuse, of whatever source, what is neither text nor a whole number; of amounts, a number.

    1 would become 1.0, and so another position or client. `type_` is Spark's name of the type.
    """
    is_number = column in NUMBERS
    if not re.fullmatch(_WHOLE + _NUMBER * is_number, type_):
        raise ShardpostError(
            f"{where}: expected text or {'numbers' if is_number else 'whole numbers'} for"
            f" {column}, found {found or type_}: write it as text: quoted in CSV, with a CAST in a"
            " query"
        )


def column_of(name: str) -> str | None:
    """Return which column it is that a list calls so; None of one that is ignored."""
    return _BY_NAME.get(name.strip().lower())


_BY_NAME = {column.lower(): column for column in COLUMNS}


def find_columns(where: str, there: Sequence[SourceColumn]) -> FoundColumns:
    """Return the columns of a list; ShardpostError for those missing, twice or of wrong types."""
    columns: dict[str, SourceColumn] = {}
    wrong = []
    for column in COLUMNS:
        found = [one for one in there if column_of(one.name) == column]
        if len(found) == 1:
            columns[column] = found[0]
        else:
            wrong.append(f"{column} is {'duplicated' if found else 'missing'}")
    if wrong:
        expected = f"expected the columns {', '.join(COLUMNS)}, each once"
        names = ", ".join(name for name, _ in there) or "none"
        raise ShardpostError(f"{where}: {expected}: {'; '.join(wrong)}; found {names}")
    for column, one in columns.items():
        require_type(where, column, one.type)
    ignored = (name or "(without a name)" for name, _ in there if not column_of(name))
    return FoundColumns(columns, tuple(ignored))


MOST_LISTED = 1000  # rejected rows
MOST_SAMPLES = 5  # ids of each change


class Change(StrEnum):
    """What the list says of one position, compared with what is open."""

    NEW = "new"
    CHANGED = "changed"
    CLOSED = "closed"
    EQUAL = "equal"
    LEFT = "left"  # its row is rejected: it stays what it is


WRITTEN = (Change.NEW, Change.CHANGED, Change.CLOSED)
SHOWN = (*WRITTEN, Change.EQUAL)


@dataclass(frozen=True)
class Plan:
    """What an import would do.

    `rows` of the list, of which `rejected_rows` are rejected (`rejected` are the first of them,
    each with its `reason` and its `row`, as it was read) and `without_id` have no id that can be
    read; `counts` of positions; `samples` of their ids; `open_positions` before it;
    `unknown_exchanges` has those of the list on exchanges without a country, of the largest of
    these.
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

    def count(self, change: Change) -> int:
        """Return the number of positions."""
        return self.counts.get(change, 0)

    @property
    def records(self) -> int:
        """The number of records to write."""
        return sum(map(self.count, WRITTEN))

    def refusal(self, max_closed: float) -> str | None:
        """Return why nothing may be written; `max_closed` is a share of the open positions."""
        closed = self.count(Change.CLOSED)
        if not closed:
            return None
        would = f"{closed} of {self.open_positions} open positions would close"
        if not self.rows:
            return f"{would}, since the list has no rows: an empty list closes nothing"
        if self.without_id:
            rows = counted(self.without_id, "row has", "rows have")
            return (
                f"{would}, but {rows} no readable {POSITION_ID} and may be these positions:"
                " correct the rows"
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
            "rows": self.rows,
            **counts,
            "left": self.count(Change.LEFT),
            "open": self.open_positions,
            "rejected": list(self.rejected),
            "rejected_rows": self.rejected_rows,
            "without_id": self.without_id,
            "ignored": list(self.ignored),
            "unknown_exchanges": dict(self.unknown_exchanges),
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
    yield f"import {result['import_id']}: {counted(result['rows'], 'row')} of {result['source']}"
    for change in SHOWN:
        ids = result["samples"].get(change, [])
        such = f"  such as {', '.join(ids)}" if ids else ""
        yield f"{change:<8}{result[change]:>10}{such}"
    if result["rejected_rows"]:
        left = counted(result["left"], "open position remains", "open positions remain")
        yield f"rejected{result['rejected_rows']:>10}  of the rows; {left}"
    if not result["refused"]:
        yield _outcome(result)


def notes(result: dict[str, Any]) -> Iterator[str]:
    """Yield notes for a person."""
    if result["ignored"]:
        yield f"ignored columns: {', '.join(result['ignored'])}"
    if result["unknown_exchanges"]:
        yield f"{UnknownExchanges.of(result['unknown_exchanges'])}: they would count for nobody"
    for found in result["rejected"]:
        row = ", ".join(f"{name} {value}" for name, value in found["row"].items() if value)
        yield f"rejected: {row or 'an empty row'}: {found['reason']}"
    if (more := result["rejected_rows"] - len(result["rejected"])) > 0:
        yield f"and {counted(more, 'more row is', 'more rows are')} rejected"


def _outcome(result: dict[str, Any]) -> str:
    records = sum(result[change] for change in WRITTEN)
    if before := result["applied_before"]:
        differ = counted(records, "position differs", "positions differ")
        again = f"; {differ} since then: give another --id" if records else ""
        return f"applied already, at {before['at']} by {before['by']}{again}"
    if result["applied"]:
        compact = "; `shardpost compact` takes them into the tables" if records else ""
        return f"applied: {counted(result['written'], 'record')} written{compact}"
    to_do = f"to apply exactly this, add --apply --up-to {result['up_to']}"
    return f"{counted(records, 'record')} would be written; {to_do}"
