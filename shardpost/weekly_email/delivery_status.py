"""The delivery status of a week, from its audience and ledger, read without a JVM.

`email` counts with it when it ends, `emails` at any time. The audience is the frozen one, or for an
early week the current one. Records that arrive after the freeze but belong before the week's end
cause no e-mail: the frozen audience is compared with the newest snapshot as of the same instant.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.records import by_partition, partition_of
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_projection import ask_shards, counts_of, listed, open_among
from shardpost.weekly_email.ledger_topic import ShardLedger
from shardpost.weekly_email.model import week_report
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerId
from shardpost.weekly_email.model.recipient import why_no_mail_can_be_written
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import POSITION, ClosedWeek
from shardpost.weekly_email.week_state import WeekState

if TYPE_CHECKING:
    from shardpost.holders.spark.held_positions import LatePositions

# Why a client without a ledger entry is open.
NOT_MAILED = "not mailed yet"


# The clients of one shard; for an early week, also why some cannot be mailed yet.
Members = dict[str, str | None]


@dataclass(frozen=True)
class EarlyAudience:
    """The audience of an early, unfrozen week: the holders as of an instant."""

    source: Snapshot
    as_of: datetime

    @property
    def snapshot(self) -> int:
        """The number of its snapshot, under the name that a frozen week has for it."""
        return self.source.number

    def members(
        self, tables: Tables, client: str | None = None
    ) -> Iterator[tuple[str, str | None]]:
        """Yield the clients, or only that one, and why each cannot be mailed yet."""
        from shardpost.holders.spark.held_positions import holding_clients  # imports PySpark

        for batch in holding_clients(tables, self.source, self.as_of, client):
            for row in batch.to_pylist():
                why = why_no_mail_can_be_written(row["email"], has_contact=row["has_contact"])
                yield row["client"], why


WeekAudience = FrozenWeek | EarlyAudience | None


def audience_of(state: WeekState, now: datetime) -> WeekAudience:
    """Return the audience of a week, or None if no run has started it.

    For an early week it is what a run would use now, from the newest snapshot.
    """
    if state.frozen or not state.is_begun:
        return state.frozen
    snapshot = snapshots.current(state.installation.tables)
    return EarlyAudience(snapshot, state.week.held_at(now, snapshot.looked_at))


@dataclass(frozen=True)
class ListedClient:
    """A client's state and the reason."""

    client: str
    shard: int
    reason: str | None


@dataclass(frozen=True)
class WeekStatus:
    """A week, its audience (None if no run has started it), and the partitions of its ledger.

    `closed` is set if the week was closed; its ledger records are gone then.
    """

    state: WeekState
    audience: WeekAudience
    partitions: int
    closed: ClosedWeek | None = None

    @property
    def week(self) -> IsoWeek:
        """The week."""
        return self.state.week

    def by_shard(
        self, chosen: Sequence[int] | None = None, *, wait: bool = False
    ) -> list[week_report.ShardStatus]:
        """Return the status of all or the chosen shards; without an audience no client is open.

        `unknown` includes the clients being mailed right now. With `wait` it reads to the end of
        the ledger, else to the first open transaction. Raises ShardpostError if the audience was
        frozen with a different number of partitions.
        """
        if self.closed is not None:
            return self.closed.shards
        shards = range(self.partitions) if chosen is None else chosen
        audience = self._audience()

        def status(shard: int, ledger: Connection) -> week_report.ShardStatus:
            members = audience(shard)
            still_open = [name for name, _ in open_among(ledger, self.week, members)]
            unknown = [name for name, _ in listed(ledger, self.week, DeliveryState.UNKNOWN)]
            causes = {
                str(state): week_report.causes_of(
                    (client, week_report.cause_of(reason, client))
                    for client, reason in listed(ledger, self.week, state)
                )
                for state in week_report.EXPLAINED
            }
            counts = {str(state): count for state, count in counts_of(ledger, self.week).items()}
            return week_report.ShardStatus(
                shard,
                **counts,
                open=len(still_open),
                unknown_clients=tuple(unknown),
                causes=causes,
                without_contact=sum(members[client] is not None for client in still_open),
            )

        return ask_shards(self.state.installation, shards, status, wait=wait)

    def in_state(self, state: str, chosen: Sequence[int] | None = None) -> Iterator[ListedClient]:
        """Yield the clients in a counted state, with the reason, ordered by shard and client.

        All shards or the chosen ones; nothing for a closed week.
        """
        if self.closed is not None:
            return
        shards = range(self.partitions) if chosen is None else chosen
        audience = self._audience() if state == "open" else None

        def those(shard: int, ledger: Connection) -> list[tuple[str, str | None]]:
            if audience is None:
                return listed(ledger, self.week, DeliveryState(state))
            members = audience(shard)
            found = open_among(ledger, self.week, members)
            return sorted((client, members[client] or said or NOT_MAILED) for client, said in found)

        found = ask_shards(self.state.installation, shards, those)
        for shard, clients in zip(shards, found, strict=True):
            for client, reason in clients:
                yield ListedClient(client, shard, reason)

    def why_open(self, client: str) -> str | None:
        """Return why an audience member is still open, or None for an unknown client."""
        match self.audience:
            case FrozenWeek(audience_erased_at=None) as frozen:
                if FrozenWeeks(self.state.installation.tables).member(frozen, client):
                    return NOT_MAILED
            case EarlyAudience() as early:
                for _, why in early.members(self.state.installation.tables, client):
                    return why or NOT_MAILED
        return None

    def _audience(self) -> Callable[[int], Members]:
        """Return a function that reads the audience of a shard; an erased audience is empty.

        A frozen week is read shard by shard, so that not all clients are in memory at once.
        """
        match self.audience:
            case FrozenWeek(audience_erased_at=None) as frozen:
                frozen.require_shards(self.partitions)
                weeks = FrozenWeeks(self.state.installation.tables)
                return lambda shard: dict.fromkeys(weeks.clients(frozen, shard))
            case EarlyAudience() as early:
                shards: dict[int, Members] = defaultdict(dict)
                for client, why in early.members(self.state.installation.tables):
                    shards[partition_of(client, self.partitions)][client] = why
                return lambda shard: shards.get(shard, {})
        return lambda _: {}


POSITION_FIELDS = tuple(name for name, _ in POSITION)


def find_late(installation: Installation, frozen: FrozenWeek) -> dict[str, Any] | None:
    """Return the clients affected by late records in the newest snapshot, or None if unknown.

    It is unknown once the audience was erased or the history at the week's end was pruned.
    """
    newest = snapshots.newest(installation.tables)
    if newest is None or frozen.audience_erased_at is not None:
        return None
    if newest.number <= frozen.snapshot:
        return week_report.late_document()
    from shardpost.holders.spark.held_positions import late_positions  # imports PySpark

    try:
        newest.require_history(frozen.as_of)
    except ShardpostError:
        return None
    late = late_positions(installation.tables, newest, frozen.snapshot, frozen.rule, frozen.as_of)
    return week_report.late_document() if late is None else _compared(installation, frozen, late)


def _compared(
    installation: Installation, frozen: FrozenWeek, late: "LatePositions"
) -> dict[str, Any]:
    rows = (late.rows.column(name).to_pylist() for name in ("client", *POSITION_FIELDS))
    now = _by_client(zip(*rows, strict=True))
    then = _by_client(_mailed(installation.tables, frozen, late.keys))
    differ = {client for client in now.keys() | then.keys() if now.get(client) != then.get(client)}
    missed, changed = set[str](), set[str]()
    for shard, names in by_partition(differ, frozen.shards).items():
        clients = {*names}
        members = clients.intersection(FrozenWeeks(installation.tables).clients(frozen, shard))
        changed |= members
        if strangers := clients & now.keys() - members:
            week = IsoWeek.parse(frozen.week)
            entries = ShardLedger(installation.kafka, week, shard).entries()
            erased = {entry.id for entry in entries if entry.state and entry.is_erased}
            # A member that was erased is not counted as missed.
            missed |= {name for name in strangers if LedgerId.erased(name) not in erased}
    return week_report.late_document(missed, changed)


def _by_client(rows: Iterable[tuple[str, ...]]) -> dict[str, int]:
    """Return {client: a hash of its positions, in any order}, of (client, position, …)."""
    found: dict[str, int] = defaultdict(int)
    for client, *position in rows:
        found[client] += hash(tuple(position))
    return found


def _mailed(
    tables: Tables, frozen: FrozenWeek, keys: pa.ChunkedArray | None
) -> Iterator[tuple[str, ...]]:
    """Yield (client, position, …) of the audience for those positions, or for all if None."""
    for batch in FrozenWeeks(tables).positions(frozen):
        flat = pc.list_flatten(batch.column("positions"))
        clients = batch.column("client").cast(pa.string())
        owners = clients.take(pc.list_parent_indices(batch.column("positions")))
        fields = [pc.struct_field(flat, name).cast(pa.string()) for name in POSITION_FIELDS]
        found = pa.table([owners, *fields], ["client", *POSITION_FIELDS])
        if keys is not None:
            found = found.filter(pc.is_in(fields[0], value_set=keys.cast(pa.string())))
        yield from zip(*(column.to_pylist() for column in found.columns), strict=True)
