"""The delivery status of a week, from its audience and its ledger: no JVM, no writes.

`email` counts with it at its end, and `emails` at any time. The audience is as it was frozen, or of
an early week as of now.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from shardpost.delta import snapshots
from shardpost.delta.object_store import Tables
from shardpost.delta.snapshot import Snapshot
from shardpost.installation import Installation
from shardpost.kafka.partitioning import partition_of
from shardpost.weekly_email import week_state
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_topic import (
    SHARDS_READ_AT_ONCE,
    LedgerReasons,
    ShardLedger,
    State,
)
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry, LedgerId, ledger_id
from shardpost.weekly_email.model.ledger_index import WHY_UNKNOWN, LedgerIndex, sending_to_unknown
from shardpost.weekly_email.model.member import why_no_mail_can_be_written
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_report import (
    EXPLAINED,
    Cause,
    ShardCounts,
    ShardStatus,
    cause_of,
    causes_of,
)

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

    def by_shard(self, tables: Tables, partitions: int) -> dict[int, ShardAudience]:
        """Return the audience of each shard."""
        shards = {shard: ShardAudience() for shard in range(partitions)}
        for client, why in self.members(tables):
            shard = shards[partition_of(client, partitions)]
            shard.clients.append(client)
            if why:
                shard.without_contact[client] = why
        return shards


WeekAudience = FrozenWeek | EarlyAudience | None


def audience_of(tables: Tables, week: IsoWeek, now: datetime) -> WeekAudience:
    """Return the audience of a week; None if no run has begun it.

    Of an early week it is the one that a run of now would have, of the newest snapshot.
    """
    if frozen := FrozenWeeks(tables).find(week):
        return frozen
    if not any(mark.week == str(week) for mark in week_state.list_marks(tables)):
        return None
    snapshot = snapshots.current(tables)
    return EarlyAudience(snapshot, week.held_at(now, snapshot.looked_at))


@dataclass(frozen=True)
class ListedClient:
    """A client that is in a state, and why."""

    client: str
    shard: int
    reason: str | None


@dataclass(frozen=True)
class WeekStatus:
    """A week, its audience (None if no run has begun it), and the partitions of its ledger."""

    installation: Installation
    week: IsoWeek
    audience: WeekAudience
    partitions: int

    def by_shard(
        self, chosen: Sequence[int] | None = None, *, wait: bool = False
    ) -> list[ShardStatus]:
        """Return the status of each shard, or of the chosen ones; without an audience none is open.

        `unknown` includes the clients that are being sent at this moment. With `wait` it is up to
        the ledger's end, else up to the first transaction that is open. ShardpostError if the
        audience was frozen with another number of partitions.
        """
        audience = self._audience()

        def status(shard: int) -> ShardStatus:
            return shard_status(shard, self._ledger(shard).entries(wait=wait), audience(shard))

        with ThreadPoolExecutor(SHARDS_READ_AT_ONCE) as pool:
            return list(pool.map(status, range(self.partitions) if chosen is None else chosen))

    def in_state(
        self,
        state: str,
        chosen: Sequence[int] | None = None,
        starts: Mapping[int, int] = MappingProxyType({}),
    ) -> Iterator[ListedClient]:
        """Yield who is in one of the states that are counted, and why; by shard and client.

        Of each shard, or of the chosen ones; `starts` are offsets below which there is nothing.
        """
        audience = self._audience()
        for shard in range(self.partitions) if chosen is None else chosen:
            entries = self._ledger(shard).entries(start=starts.get(shard))
            listed = _listed(entries, audience(shard), state)
            for client, reason in sorted(listed):
                yield ListedClient(client, shard, reason)

    def open_clients(
        self, shard: int, index: LedgerIndex, reasons: LedgerReasons
    ) -> list[tuple[str, str | None]]:
        """Return who is open of a shard, and why, by its ledger; `reasons` are of tombstones."""
        return sorted(_open(index, reasons, self._audience()(shard)))

    def why_open(self, client: str) -> str | None:
        """Return why a member of the audience is open yet; None if it is no known member."""
        match self.audience:
            case FrozenWeek(audience_erased_at=None) as frozen:
                return (
                    NOT_MAILED
                    if FrozenWeeks(self.installation.tables).member(frozen, client)
                    else None
                )
            case EarlyAudience() as early:
                for _, why in early.members(self.installation.tables, client):
                    return why or NOT_MAILED
        return None

    def _audience(self) -> Callable[[int], ShardAudience]:
        """Return a function that returns the audience of a shard; an erased one has no members."""
        match self.audience:
            case FrozenWeek(audience_erased_at=None) as frozen:
                frozen.require_shards(self.partitions)
                weeks = FrozenWeeks(self.installation.tables)
                return lambda shard: ShardAudience(weeks.clients(frozen, shard))
            case EarlyAudience() as early:
                return early.by_shard(self.installation.tables, self.partitions).__getitem__
        return lambda _shard: ShardAudience()

    def _ledger(self, shard: int) -> ShardLedger:
        return ShardLedger(self.installation.kafka, self.week, shard)


def shard_status(
    shard: int, entries: Iterable[LedgerEntry], audience: ShardAudience
) -> ShardStatus:
    """Return the status of one shard by the entries of its ledger, oldest first."""
    reasons = LedgerReasons(frozenset(EXPLAINED))
    index = LedgerIndex.fold(reasons.watch(entries))
    sending_to_unknown(index)
    states = index.states(audience.clients)
    without = index.states(list(audience.without_contact)).count(None)
    return status_of(shard, index, reasons, states.count(None), without)


def status_of(
    shard: int, index: LedgerIndex, reasons: LedgerReasons, open_clients: int, without_contact: int
) -> ShardStatus:
    """Return the status of one shard by its ledger, in which nobody is `sending`."""
    unknown = [about.client for about in index.delivery_unknown]
    counts = ShardCounts.of(shard, index.counts(), open_clients, unknown)
    return ShardStatus(counts, _causes(reasons), without_contact)


def _causes(reasons: LedgerReasons) -> dict[str, list[Cause]]:
    last = sorted(reasons.last.items())
    return {
        str(state): causes_of(
            (client, cause_of(reason, client))
            for (client, _), (own, reason) in last
            if own is state
        )
        for state in EXPLAINED
    }


def _listed(
    entries: Iterable[LedgerEntry], audience: ShardAudience, state: str
) -> Iterable[tuple[str, str | None]]:
    reasons = LedgerReasons(_ledger_states(state))
    entries = reasons.watch(entries)
    if state == "open":
        yield from _open(LedgerIndex.fold(entries), reasons, audience)
        return
    deque(entries, maxlen=0)
    for (client, _), (last, reason) in reasons.last.items():
        yield client, WHY_UNKNOWN if last is DeliveryState.SENDING else reason


def _open(
    index: LedgerIndex, reasons: LedgerReasons, audience: ShardAudience
) -> Iterator[tuple[str, str | None]]:
    for client, state in zip(audience.clients, index.states(audience.clients), strict=True):
        if state is None:
            _, reason = reasons.last.get(LedgerId(ledger_id(client)), (None, None))
            yield client, audience.without_contact.get(client) or reason or NOT_MAILED


def _ledger_states(state: str) -> frozenset[State]:
    if state == "open":
        return frozenset({None})
    if state == DeliveryState.UNKNOWN:
        return frozenset({DeliveryState.UNKNOWN, DeliveryState.SENDING})
    return frozenset({DeliveryState(state)})
