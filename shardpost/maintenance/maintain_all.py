"""All that is done for the age of a home: audiences, weeks, letters, records, and files."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from shardpost.dead_letters import removal
from shardpost.errors import ShardpostError
from shardpost.maintenance import old_records
from shardpost.maintenance.maintain import maintain
from shardpost.maintenance.model.plan import Plan
from shardpost.settings import Settings
from shardpost.weekly_email import retention


class Aged(Protocol):
    """What was done for the age of one thing, as each of the modules returns it."""

    postponed: dict[str, str]
    warning: str | None

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""

    def lines(self) -> list[str]:
        """Return it in words."""


@dataclass
class Maintenance:
    """What was done, or with a dry run would be; `errors` are why something was not."""

    tables: Plan
    weeks: dict[str, Aged] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        aged = {name: one.as_json() for name, one in self.weeks.items()}
        return self.tables.as_json() | aged | {"errors": self.errors}

    def lines(self, days: int) -> list[str]:
        """Return it in words; `days` is SHARDPOST_SNAPSHOT_DAYS."""
        aged = (line for one in self.weeks.values() for line in one.lines())
        return [*aged, *self.tables.in_words(days)]


def maintain_all(settings: Settings, now: datetime, *, dry_run: bool = False) -> Maintenance:
    """Erase old audiences, close old weeks, remove old letters and records, and unneeded files.

    One that cannot be done keeps none of the others from being done: `errors` says why.
    """
    done: dict[str, Aged] = {}
    errors: list[str] = []

    def do(name: str, work: Callable[..., Aged]) -> None:
        try:
            one = work(settings, now, dry_run=dry_run)
        except ShardpostError as error:
            errors.append(f"{name}: {error}")
        else:
            done[name] = one
            errors.extend(f"{name}: {week}: {why}" for week, why in one.postponed.items())

    do("audiences", retention.erase_old_audiences)
    do("weeks", retention.close_old_weeks)
    do("letters", removal.remove_old)
    if settings.history_days is not None:
        do("records", old_records.prune_old)
    tables = maintain(settings, now, dry_run=dry_run)
    return Maintenance(tables, done, [*errors, *tables.errors])
