"""A snapshot: one consistent view of all tables, at known offsets."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from shardpost.delta.table import (
    Int32,
    Json,
    JsonOrNull,
    LayeredVersion,
    Mark,
    Named,
    Table,
    layered,
)
from shardpost.errors import ShardpostError, shown
from shardpost.kafka.records import Offsets
from shardpost.values.holding_rule import Rule
from shardpost.wording import counted

# The `looked_at` of a snapshot whose inputs were never read to their ends, as far as is known.
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
# The clocks of two machines may differ by so much. A `looked_at` that is further ahead was written
# by a clock that was wrong, or is read by one: it says nothing.
MOST_AHEAD = timedelta(minutes=5)


@dataclass(frozen=True)
class IncompleteLook:
    """What a look found if the inputs had records after open transactions, which are unreadable.

    Once all below the offsets `ends` is read, the inputs are known to have held no more at `at`.
    `read_at` is when they were last read as far as that was possible.
    """

    at: datetime
    ends: Offsets
    read_at: datetime

    def is_read_up_to(self, read: Offsets) -> bool:
        """Tell whether everything below `ends` was read."""
        return all(
            read[topic].get(partition, 0) >= end
            for topic, partitions in self.ends.items()
            if topic in read
            for partition, end in partitions.items()
        )


# So many exchanges without a country are kept by name, and so many of those are named; each by so
# many characters.
MOST_UNKNOWN_KEPT = 1000
MOST_UNKNOWN_NAMED = 20
LONGEST_EXCHANGE = 100


@dataclass(frozen=True)
class UnknownExchanges:
    """Open positions on exchanges without a record that has a country.

    `unknown_exchanges` is {exchange: how many}, the largest of them, most positions first.
    """

    unknown_positions: int = 0
    unknown_exchanges: JsonOrNull[Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> "UnknownExchanges":
        """Return what {exchange: how many} has of all of them."""
        largest = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:MOST_UNKNOWN_KEPT]
        return cls(sum(counts.values()), {code: count for code, count in largest if count})

    @property
    def has_all(self) -> bool:
        """Whether each exchange is kept by name."""
        return sum(self.unknown_exchanges.values()) == self.unknown_positions

    @property
    def named(self) -> dict[str, int]:
        """The largest, as many as are named."""
        return dict([*self.unknown_exchanges.items()][:MOST_UNKNOWN_NAMED])

    def __str__(self) -> str:
        names = ", ".join(f"{code!r} {count}" for code, count in self.named.items())
        more = ", …" if len(self.named) < len(self.unknown_exchanges) else ""
        positions = counted(self.unknown_positions, "open position")
        return f"{positions} on exchanges without a country ({names}{more})"


@dataclass(frozen=True)
class Counts:
    """In the view: open positions, clients that hold, positions they hold, rejected records.

    And which of the open positions are on exchanges without a country.
    """

    positions: int = 0
    holders: int = 0
    held: int = 0
    rejected: int = 0
    unknown: UnknownExchanges = UnknownExchanges()

    def summary(self) -> str:
        """Return them as one line."""
        return (
            f"{counted(self.positions, 'open position')},"
            f" {counted(self.holders, 'client holds', 'clients hold')}"
            f" {counted(self.held, 'position')},"
            f" {counted(self.rejected, 'record')} rejected in all"
            + (f", {self.unknown}" if self.unknown.unknown_positions else "")
        )


# So long after keys were found to be scattered for the last time, an alert fires.
SCATTERED_FOR = timedelta(days=7)


@dataclass(frozen=True)
class Scattered:
    """Keys of a topic with records in several partitions, which added partitions do not explain.

    How many the run found that made the snapshot of that number at that time, and some of them:
    none of a topic of clients, which may be erased.
    """

    snapshot: int
    at: datetime
    count: int
    keys: tuple[str, ...]

    def __str__(self) -> str:
        such = f", such as {', '.join(map(shown, self.keys))}" if self.keys else ""
        at = f"snapshot {self.snapshot} of {self.at:%Y-%m-%d %H:%M} UTC"
        return f"{counted(self.count, 'key')}{such}, by {at}"


@dataclass(frozen=True)
class Cleaning:
    """How Kafka cleaned a topic when it was looked at.

    `cleanup.policy`, and in milliseconds `min.compaction.lag.ms`, `delete.retention.ms`, and the
    lower of `segment.ms` and `max.compaction.lag.ms`.
    """

    policy: tuple[str, ...]
    lag_ms: int
    retention_ms: int
    segment_ms: int


@dataclass(frozen=True)
class Snapshot:
    """One committed row of the table `snapshots`.

    SNAPSHOTS says what its columns are. `folders` lacks the tables in the folder of their name,
    `folded` those whose files have all of this snapshot; `topic_ids`, `generations` and `cleaning`
    lack topics of which it is not known, or that were never recreated.
    """

    number: Annotated[int, Named("snapshot")]
    committed_at: datetime
    looked_at: datetime
    end_offsets: Json[Offsets]
    tables: Json[Mapping[str, int]]
    counts: Counts
    rule: Rule
    shards: Int32
    code_version: str
    run: str
    topic_ids: Json[Mapping[str, str]] = field(default_factory=dict)
    generations: Json[Mapping[str, int]] = field(default_factory=dict)
    incomplete: Annotated[IncompleteLook | None, Named("incomplete_look"), Mark.JSON] = None
    folded: Json[Mapping[str, int]] = field(default_factory=dict)
    erased_in: int | None = None
    history_from: datetime | None = None
    folders: JsonOrNull[Mapping[str, str]] = field(default_factory=dict)
    rebuilt_in: int | None = None
    set_country: str | None = None
    decoder: str | None = None
    cleaning: JsonOrNull[Mapping[str, Cleaning]] = field(default_factory=dict)
    scattered: JsonOrNull[Mapping[str, Scattered]] = field(default_factory=dict)

    inputs: str | None = None

    def located(self, table: Table) -> Table:
        """Return a table in the folder where this snapshot has it.

        One of form 3 has no table of the layer over the holders: the layer is in their own table.
        """
        there = table.located(self.folders) if self.folders else table
        names = {table.name, table.layer_source.name}
        if table.layer and names & self.tables.keys() == {table.name}:
            own = replace(table.layer, source=replace(there, layer=None))
            return replace(there, layer=own)
        return there

    def rule_now(self, setting: Rule) -> Rule:
        """Return by which rule positions count from now on, given that of the settings.

        That of this snapshot, unless the settings were changed since that was chosen.
        """
        return self.rule if setting.name == (self.set_country or self.rule.name) else setting

    def is_in_force(self, newest: "Snapshot") -> bool:
        """Tell whether no tables were swapped since, and the same rule of who holds is in force."""
        return (self.rebuilt_in, self.rule) == (newest.rebuilt_in, newest.rule)

    def require_history(self, at: datetime) -> None:
        """Refuse a time for which the histories are no longer complete."""
        if self.history_from is not None and at < self.history_from:
            raise ShardpostError(
                f"as of {at.isoformat()}: snapshot {self.number} has the whole history from"
                f" {self.history_from.isoformat()} on: records superseded before that were pruned"
                " (SHARDPOST_HISTORY_DAYS)"
            )

    @property
    def has_contacts(self) -> bool:
        """Whether its tables with contacts may be read: no client was erased since."""
        return self.erased_in is None or self.erased_in <= self.number

    def folded_up_to(self, table: str) -> int:
        """Return the number of the snapshot up to which a table's files are folded."""
        return self.folded.get(table, self.number)

    def layered(self, table: Table) -> LayeredVersion:
        """Return the version of a table with a layer in a form that keys can be given to."""
        return layered(self.located(table), self.tables, self.folded_up_to(table.name))

    @property
    def read_at(self) -> datetime:
        """When the inputs were last read, as far as that was possible then."""
        return self.incomplete.read_at if self.incomplete else self.looked_at

    def is_ahead(self, now: datetime) -> bool:
        """Tell whether its `looked_at` is ahead of `now`."""
        return max(self.looked_at, self.read_at) > now + MOST_AHEAD

    def as_known(self, now: datetime) -> "Snapshot":
        """Return the same view; without `looked_at` if that is ahead of `now`."""
        if not self.is_ahead(now):
            return self
        return replace(self, looked_at=NEVER, incomplete=None)

    def require_shards(self, shards: int) -> None:
        """Raise ShardpostError if the number of partitions of `share-holders` was changed."""
        if shards != self.shards:
            raise ShardpostError(
                f"share-holders has {counted(shards, 'partition')}, but had {self.shards} at"
                f" snapshot {self.number}: clients would move to other partitions, and readers"
                " would see them in both. The number must not be changed: set"
                " SHARDPOST_TOPIC_SHARE_HOLDERS to a topic of its own and SHARDPOST_TABLES to a new"
                " folder, and compact again"
            )

    def as_json(self) -> dict[str, Any]:
        """Return the snapshot in the contract's form; with `folders` if tables were rebuilt."""
        return {
            "snapshot": self.number,
            "committed_at": self.committed_at.isoformat(),
            "looked_at": self.looked_at.isoformat(),
            **vars(self.rule),
            "end_offsets": {
                topic: {str(partition): end for partition, end in partitions.items()}
                for topic, partitions in self.end_offsets.items()
            },
            "tables": dict(self.tables),
            **({"folders": dict(self.folders)} if self.folders else {}),
            "positions": self.counts.positions,
            "holders": self.counts.holders,
            "rejected": self.counts.rejected,
            "unknown_exchanges": self.counts.unknown.named,
        }
