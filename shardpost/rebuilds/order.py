"""The order that the job `rebuild_tables` is given: its action, tables and bounds."""

from dataclasses import dataclass
from enum import StrEnum

from shardpost.errors import UsageError
from shardpost.holders.model.view_tables import VIEW
from shardpost.rebuilds.model.rebuild import HISTORIES, Source, with_dependents


class Action(StrEnum):
    """What a run of the job does."""

    START = "start"
    TOP_UP = "top-up"
    SWAP = "swap"
    ROLLBACK = "rollback"


@dataclass(frozen=True)
class Order:
    """What is to be done, by whom, and why.

    `country` and `tables` are for START; None and () mean the country in force and all. `number` is
    the rebuild that is meant by the others; None means that whose tables are there. A swap is
    refused if more than the share `max_changed` differs; None means any. It is refused, too, if
    tables were swapped since the snapshot `compared`, at which somebody agreed to it.
    """

    action: Action
    by: str
    why: str = ""
    source: Source = Source.HISTORY
    country: str | None = None
    tables: tuple[str, ...] = ()
    max_changed: float | None = None
    number: int | None = None
    compared: int | None = None

    def __post_init__(self) -> None:
        """UsageError for a blank country, and a source of which the tables are not made."""
        if self.country is not None and not self.country.strip():
            raise UsageError(f"country: expected a code, found {self.country!r}")
        if self.source is Source.KAFKA and self.tables and not {*HISTORIES} <= {*self.tables}:
            raise UsageError(
                f"tables {', '.join(self.tables)} from kafka: only the histories are read from the"
                " topics. Rebuild all tables, or these from the history"
            )


def tables_of(names: str | None) -> tuple[str, ...]:
    """Return the tables of names with commas, and those made of them; all for None."""
    if names is None:
        return with_dependents([table.name for table in VIEW])
    return with_dependents([name.strip() for name in names.split(",")])
