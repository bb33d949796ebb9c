"""The Spark job `rebuild_tables`, as commands and DAGs submit it, and its request."""

from dataclasses import dataclass
from enum import StrEnum

from shardpost.errors import UsageError
from shardpost.holders.compaction_job import jars_of_inputs
from shardpost.installation import Installation
from shardpost.rebuilds.model.rebuild import HISTORIES, NAMES, Source, State, with_dependents
from shardpost.spark.job import JobSpec
from shardpost.values.holding_rule import Rule, parsed


class Action(StrEnum):
    """What a run of the job does."""

    START = "start"
    TOP_UP = "top-up"
    SWAP = "swap"
    ROLLBACK = "rollback"


@dataclass(frozen=True)
class RebuildRequest:
    """What to do, for whom, and why.

    `country` or `holds`, and `tables`, are for START; without, the rule of who holds that is in
    force, and all. `number` is
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
    holds: str | None = None

    def __post_init__(self) -> None:
        """UsageError for a wrong country or condition, and a source of which no tables are made."""
        if self.country is not None and not self.country.strip():
            raise UsageError(f"country: expected a code, found {self.country!r}")
        if self.holds is not None:
            if self.country is not None:
                raise UsageError("expected a country or a condition of who holds, found both")
            try:
                parsed(self.holds)
            except ValueError as error:
                raise UsageError(f"holds: {error}") from None
        if self.source is Source.KAFKA and self.tables and not {*HISTORIES} <= {*self.tables}:
            raise UsageError(
                f"tables {', '.join(self.tables)} from kafka: only the histories are read from the"
                " topics. Rebuild all tables, or these from the history"
            )

    def rule(self, in_force: Rule) -> Rule:
        """Return who holds in the new tables; `in_force` is by the settings and the tables."""
        if self.holds is not None:
            return Rule(in_force.country, str(parsed(self.holds)))
        return in_force if self.country is None else Rule(self.country)


def tables_of(names: str | None) -> tuple[str, ...]:
    """Return the tables of names with commas, and those made of them; all for None."""
    return with_dependents(NAMES if names is None else [one.strip() for one in names.split(",")])


def _records(installation: Installation) -> int:
    """Count the records of all histories, for a run that makes tables of them."""
    from shardpost.delta import snapshots, storage
    from shardpost.delta.query import table_errors
    from shardpost.holders.model.view_tables import INPUTS
    from shardpost.rebuilds import registry

    tables = installation.tables
    with table_errors():
        rebuild, newest = registry.current(tables), snapshots.newest(tables)
        if newest is None or not (rebuild is None or rebuild.state is State.BUILDING):
            return 0
        there = [one.history for one in INPUTS.values() if one.history.name in newest.tables]
        located = ((newest.located(table), newest.tables[table.name]) for table in there)
        return sum(sum(storage.rows(tables, *one).values()) for one in located)


REBUILD_TABLES = JobSpec(
    "rebuild_tables", _records, has_own_class_archive=True, more_jars=jars_of_inputs
)
