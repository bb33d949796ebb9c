"""A rebuild: tables computed anew beside those in use, until they are swapped or dropped."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import Int32, Json, Named, Table, columns_of
from shardpost.errors import ShardpostError, UsageError, shown
from shardpost.holders.model import view_tables as t
from shardpost.values.holding_rule import Rule

HISTORIES = tuple(tables.history.name for tables in t.INPUTS.values())
NAMES = tuple(table.name for table in t.VIEW)


class Source(StrEnum):
    """What the histories of a rebuild are made from."""

    HISTORY = "history"
    KAFKA = "kafka"


class State(StrEnum):
    """The state in its row; the newest snapshot says whether the rebuild is in use."""

    BUILDING = "building"
    BUILT = "built"
    DROPPED = "dropped"


class Standing(StrEnum):
    """The state of a rebuild for people, including which tables are in use."""

    BUILDING = "building"
    READY = "ready"
    IN_USE = "in use"
    ROLLED_BACK = "rolled back"
    FINAL = "in use for good"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Progress:
    """Finished units of work, and records in them, of all; `seconds` are of all attempts."""

    units: int = 0
    records: int = 0
    of_records: int = 0
    seconds: float = 0.0

    def summary(self) -> str:
        """Return records, share, rate, and the remaining time at that rate."""
        share = self.records / self.of_records if self.of_records else 1.0
        line = f"{self.records:,} of {self.of_records:,} records, {share:.0%}"
        if not (self.records and self.seconds):
            return line
        rate = self.records / self.seconds
        left = (self.of_records - self.records) / rate
        return f"{line}, {rate:,.0f} a second, {left:.0f} s left"


@dataclass(frozen=True)
class Rebuild:
    """One rebuild; REBUILDS describes its columns."""

    number: Annotated[int, Named("rebuild")]
    started_at: datetime
    changed_at: datetime
    started_by: str
    source: Source
    rule: Rule
    tables: Json[tuple[str, ...]]
    pinned: int
    state: State = State.BUILDING
    progress: Json[Progress] = field(default_factory=Progress)
    missing: Json[tuple[str, ...]] = ()
    candidate: Json[Snapshot] = field(kw_only=True)
    former: Json[Snapshot | None] = None
    swaps: Int32 = 0

    @property
    def folders(self) -> dict[str, str]:
        """{name: folder} of its own tables."""
        return folders_of(self.tables, self.number)

    @property
    def is_open(self) -> bool:
        """Whether its tables are there, in use or beside."""
        return self.state is not State.DROPPED

    def is_in_use(self, newest: Snapshot) -> bool:
        """Tell whether its tables are those of the newest snapshot."""
        return all(self._in_use(newest))

    def was_swapped(self, newest: Snapshot) -> bool:
        """Tell whether its tables were ever in use.

        By what was committed: a run that was killed before its commit has swapped nothing.
        """
        return (newest.rebuilt_in or 0) > self.pinned

    def _in_use(self, newest: Snapshot) -> list[bool]:
        return [newest.folders.get(name) == one for name, one in self.folders.items()]

    def standby(self, newest: Snapshot) -> Snapshot | None:
        """Return the tables that are not in use, and can be swapped in."""
        return self.former if self.is_in_use(newest) else self.candidate

    def require_standby(self, newest: Snapshot) -> Snapshot:
        """Return the same; ShardpostError in a copy of the tables of the moment of a swap."""
        if (standby := self.standby(newest)) is None:
            raise ShardpostError(
                f"rebuild {self.number}: the previous tables are not recorded, so they can be"
                " neither compared nor put back in use; `shardpost rebuild drop` drops them"
            )
        return standby

    def with_standby(self, standby: Snapshot, newest: Snapshot) -> "Rebuild":
        """Return it with other standby tables."""
        if self.is_in_use(newest):
            return replace(self, former=standby)
        return replace(self, candidate=standby)

    def views(self, newest: Snapshot) -> list[Snapshot]:
        """Return the tables that are read of an open rebuild, those beside the ones in use first.

        Tables in use are compared with the others as they were when they were swapped.
        """
        read = [self.former, self.candidate] if self.is_in_use(newest) else [self.candidate]
        return [view for view in read if view is not None]

    def standing(self, newest: Snapshot) -> Standing:
        """Return its state for people."""
        if self.state is State.DROPPED:
            return Standing.FINAL if any(self._in_use(newest)) else Standing.DROPPED
        if self.state is State.BUILDING:
            return Standing.BUILDING
        if self.is_in_use(newest):
            return Standing.IN_USE
        return Standing.ROLLED_BACK if self.was_swapped(newest) else Standing.READY


# One row per rebuild: the commit point of the tables beside those in use.
REBUILDS = Table(
    "rebuilds",
    columns_of(Rebuild),
    comments={
        "rebuild": "number, from 2; suffix of its folders",
        "changed_at": "last write of this row",
        "source": "`history` or `kafka`",
        "tables": "JSON: names",
        "pinned": "source snapshot, kept until built",
        "state": "`building`, `built`, `dropped`",
        "progress": 'JSON `{"units", "records", "of_records", "seconds"}`',
        "missing": "JSON: ranges that Kafka no longer held",
        "candidate": "JSON, a row of `snapshots`: the new tables, last beside those in use",
        "former": "the same for the old tables, last in use; null before a swap",
        "swaps": "swaps begun, either way; a killed one counts",
    },
)


def folders_of(tables: Collection[str], number: int) -> dict[str, str]:
    """Return {name: folder} of the tables that a rebuild makes."""
    return {name: f"{name}.{number}" for name in tables}


def with_dependents(names: Collection[str]) -> tuple[str, ...]:
    """Return tables and their dependents, in build order; UsageError for an unknown name."""
    if unknown := sorted({*names} - {*NAMES}):
        raise UsageError(f"{shown(unknown[0])}: expected a table: {', '.join(NAMES)}")
    wanted = {*names}
    for tables in t.INPUTS.values():
        if tables.history.name in wanted:
            wanted |= {tables.latest.name, t.REJECTED_RECORDS.name}
    if t.REJECTED_RECORDS.name in wanted:  # one table of all inputs
        wanted |= {*HISTORIES} | {tables.latest.name for tables in t.INPUTS.values()}
    if {t.INPUTS["positions"].latest.name, t.INPUTS["exchanges"].latest.name} & wanted:
        wanted.add(t.SHARE_HOLDERS.name)
    if {t.SHARE_HOLDERS.name, t.SHARE_HOLDERS_CHANGES.name} & wanted:
        wanted |= {t.SHARE_HOLDERS.name, t.SHARE_HOLDERS_CHANGES.name}
    return tuple(name for name in NAMES if name in wanted)
