"""The delivery status of a week, from its audience and its ledger: no JVM, no writes.

`email` counts with it at its end, and `emails` at any time. The audience is as it was frozen, or of
an early week as of now. Records that came after a week was frozen, and are of before its end, mail
nobody: the frozen audience is compared with what the newest snapshot says as of the same instant.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from sqlite3 import Connection
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.delta import snapshots
from shardpost.delta.object_store import Tables
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.partitioning import by_partition, partition_of
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_projection import ask_shards, counts_of, listed, open_among
from shardpost.weekly_email.ledger_topic import ShardLedger
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerId
from shardpost.weekly_email.model.recipient import why_no_mail_can_be_written
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_report import (
    EXPLAINED,
    LateClients,
    ShardCounts,
    ShardStatus,
    cause_of,
    causes_of,
)
from shardpost.weekly_email.model.week_tables import POSITION, ClosedWeek
from shardpost.weekly_email.week_state import WeekState

if TYPE_CHECKING:
    from shardpost.holders.spark.held_positions import LatePositions

# Why a client is open of which the ledger says nothing.
NOT_MAILED = "not mailed yet"


@dataclass(frozen=True)
class ShardAudience:
    """The clients of one shard, and of an early week why no mail can be written to some yet."""

    clients: list[str] = field(default_factory=list)
    without_contact: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EarlyAudience:
    """The audience of a week that was begun early and is not frozen: who held as of an instant."""

    source: Snapshot
    as_of: datetime

    @property
    def snapshot(self) -> int:
        """The number of the snapshot that it is of, named as a frozen week names it."""
        return self.source.number

    def members(
        self, tables: Tables, client: str | None = None
    ) -> Iterator[tuple[str, str | None]]:
        """Yield the clients, or the one, and why no mail can be written to it yet."""
        from shardpost.holders.spark.held_positions import holding_clients  # imports PySpark

        for batch in holding_clients(tables, self.source, self.as_of, client):
            for row in batch.to_pylist():
                why = why_no_mail_can_be_written(row["email"], has_contact=row["has_contact"])
                yield row["client"], why


WeekAudience = FrozenWeek | EarlyAudience | None


def audience_of(state: WeekState, now: datetime) -> WeekAudience:
    """Return the audience of a week; None if no run has begun it.

    Of an early week it is the one that a run of now would have, of the newest snapshot.
    """
    if state.frozen or not state.is_begun:
        return state.frozen
    snapshot = snapshots.current(state.installation.tables)
    return EarlyAudience(snapshot, state.week.held_at(now, snapshot.looked_at))


@dataclass(frozen=True)
class ListedClient:
    """A client that is in a state, and why."""

    client: str
    shard: int
    reason: str | None


@dataclass(frozen=True)
class WeekStatus:
    """A week, its audience (None if no run has begun it), and the partitions of its ledger.

    `closed` is how it was closed, if it was: then the ledger has nothing of it.
    """

    state: WeekState
    audience: WeekAudience
    partitions: int
    closed: ClosedWeek | None = None

    @property
    def week(self) -> IsoWeek:
        """The week."""
        return self.state.week

    @property
    def installation(self) -> Installation:
        """Where its ledger and its tables are."""
        return self.state.installation

    def by_shard(
        self, chosen: Sequence[int] | None = None, *, wait: bool = False
    ) -> list[ShardStatus]:
        """Return the status of each shard, or of the chosen ones; without an audience none is open.

        `unknown` includes the clients that are being sent at this moment. With `wait` it is up to
        the ledger's end, else up to the first transaction that is open. ShardpostError if the
        audience was frozen with another number of partitions.
        """
        shards = range(self.partitions) if chosen is None else chosen
        audience = self._audience()

        def status(shard: int, ledger: Connection) -> ShardStatus:
            members = audience(shard)
            still_open = [name for name, _ in open_among(ledger, self.week, members.clients)]
            unknown = [name for name, _ in listed(ledger, self.week, DeliveryState.UNKNOWN)]
            causes = {
                str(state): causes_of(
                    (client, cause_of(reason, client))
                    for client, reason in listed(ledger, self.week, state)
                )
                for state in EXPLAINED
            }
            states = counts_of(ledger, self.week)
            counts = ShardCounts.of(shard, states, len(still_open), unknown)
            without_contact = sum(client in members.without_contact for client in still_open)
            return ShardStatus(counts, causes, without_contact)

        return ask_shards(self.installation, shards, status, wait=wait)

    def in_state(self, state: str, chosen: Sequence[int] | None = None) -> Iterator[ListedClient]:
        """Yield who is in one of the states that are counted, and why; by shard and client.

        Of each shard, or of the chosen ones; of a closed week nobody.
        """
        if self.closed is not None:
            return
        shards = range(self.partitions) if chosen is None else chosen
        audience = self._audience() if state == "open" else None

        def those(shard: int, ledger: Connection) -> list[tuple[str, str | None]]:
            if audience is None:
                return listed(ledger, self.week, DeliveryState(state))
            members = audience(shard)
            found, why = open_among(ledger, self.week, members.clients), members.without_contact
            return sorted((client, why.get(client) or said or NOT_MAILED) for client, said in found)

        found = ask_shards(self.installation, shards, those)
        for shard, clients in zip(shards, found, strict=True):
            for client, reason in clients:
                yield ListedClient(client, shard, reason)

    def why_open(self, client: str) -> str | None:
        """Return why a member of the audience is open yet; None if it is no known member."""
        match self.audience:
            case FrozenWeek(audience_erased_at=None) as frozen:
                if FrozenWeeks(self.installation.tables).member(frozen, client):
                    return NOT_MAILED
            case EarlyAudience() as early:
                for _, why in early.members(self.installation.tables, client):
                    return why or NOT_MAILED
        return None

    def _audience(self) -> Callable[[int], ShardAudience]:
        """Return what gives the audience of a shard; an erased one has no members.

        The clients of a frozen week are read shard by shard, so not all are in memory at once.
        """
        match self.audience:
            case FrozenWeek(audience_erased_at=None) as frozen:
                frozen.require_shards(self.partitions)
                weeks = FrozenWeeks(self.installation.tables)
                return lambda shard: ShardAudience(weeks.clients(frozen, shard))
            case EarlyAudience() as early:
                shards = {shard: ShardAudience() for shard in range(self.partitions)}
                for client, why in early.members(self.installation.tables):
                    audience = shards[partition_of(client, self.partitions)]
                    audience.clients.append(client)
                    if why:
                        audience.without_contact[client] = why
                return lambda shard: shards.get(shard, ShardAudience())
        return lambda _: ShardAudience()


POSITION_FIELDS = tuple(name for name, _ in POSITION)


def find_late(installation: Installation, frozen: FrozenWeek) -> LateClients | None:
    """Return whom late records concern, by the newest snapshot; None if that is not known.

    That is so once the audience was erased, or the history of the week's end was pruned.
    """
    newest = snapshots.newest(installation.tables)
    if newest is None or frozen.audience_erased_at is not None:
        return None
    if newest.number <= frozen.snapshot:
        return LateClients()
    from shardpost.holders.spark.held_positions import late_positions  # imports PySpark

    try:
        newest.require_history(frozen.as_of)
    except ShardpostError:
        return None
    late = late_positions(
        installation.tables, newest, frozen.snapshot, frozen.country, frozen.as_of
    )
    return LateClients() if late is None else _compared(installation, frozen, late)


def _compared(installation: Installation, frozen: FrozenWeek, late: "LatePositions") -> LateClients:
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
            # Who was a member, and was erased, is not missed.
            missed |= {name for name in strangers if LedgerId.erased(name) not in erased}
    return LateClients(tuple(sorted(missed)), tuple(sorted(changed)))


def _by_client(rows: Iterable[tuple[str, ...]]) -> dict[str, int]:
    """Return {client: a hash of its positions, in any order}, of (client, position, …)."""
    found: dict[str, int] = defaultdict(int)
    for client, *position in rows:
        found[client] += hash(tuple(position))
    return found


def _mailed(
    tables: Tables, frozen: FrozenWeek, keys: pa.ChunkedArray | None
) -> Iterator[tuple[str, ...]]:
    """Yield (client, position, …) of the audience, of those positions; None: of all."""
    for batch in FrozenWeeks(tables).positions(frozen):
        flat = pc.list_flatten(batch.column("positions"))
        clients = batch.column("client").cast(pa.string())
        owners = clients.take(pc.list_parent_indices(batch.column("positions")))
        fields = [pc.struct_field(flat, name).cast(pa.string()) for name in POSITION_FIELDS]
        found = pa.table([owners, *fields], ["client", *POSITION_FIELDS])
        if keys is not None:
            found = found.filter(pc.is_in(fields[0], value_set=keys.cast(pa.string())))
        yield from zip(*(column.to_pylist() for column in found.columns), strict=True)
