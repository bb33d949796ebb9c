"""The delivery status of a week, from its audience and its ledger: no JVM, no writes.

`email` counts with it at its end, and `emails` at any time. The audience is as it was frozen, or of
an early week as of now.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.kafka.partitioning import partition_of
from shardpost.settings import Settings
from shardpost.weekly_email import ledger_guard
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_topic import LedgerReasons, ShardLedger, State
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry, ledger_id
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
class EarlyAudience:
    """The audience of a week that was begun early and is not frozen: who held as of an instant."""

    source: Snapshot
    as_of: datetime

    @property
    def snapshot(self) -> int:
        """The number of the snapshot that it is of, named as a frozen week names it."""
        return self.source.number


@dataclass(frozen=True)
class ShardAudience:
    """The clients of one shard, and of an early week why no mail can be written to some yet."""

    clients: list[str] = field(default_factory=list)
    without_contact: dict[str, str] = field(default_factory=dict)


WeekAudience = FrozenWeek | EarlyAudience | None


def audience_of(settings: Settings, week: IsoWeek, now: datetime) -> WeekAudience:
    """Return the audience of a week; None if no run has begun it.

    Of an early week it is the one that a run of now would have: as of now, of the week's end, or
    of the time up to which the newest snapshot has all records, whichever is first.
    """
    if frozen := FrozenWeeks(settings).find(week):
        return frozen
    if not any(mark.week == str(week) for mark in ledger_guard.list_marks(settings)):
        return None
    snapshot = snapshots.current(settings)
    return EarlyAudience(snapshot, min(now, week.end, snapshot.looked_at))


def audience_by_shard(
    settings: Settings, audience: WeekAudience, partitions: int
) -> Callable[[int], ShardAudience]:
    """Return a function that returns the audience of a shard.

    An erased audience has no known members. ShardpostError if it was frozen with
    another number of partitions.
    """
    match audience:
        case FrozenWeek():
            if audience.audience_erased_at is not None:
                return lambda _shard: ShardAudience()
            audience.require_shards(partitions)
            return lambda shard: ShardAudience(FrozenWeeks(settings).clients(audience, shard))
        case EarlyAudience():
            found = _early(settings, audience, partitions)
            return lambda shard: found.get(shard, ShardAudience())
        case None:
            return lambda _shard: ShardAudience()


def _early(
    settings: Settings, audience: EarlyAudience, partitions: int
) -> dict[int, ShardAudience]:
    found: dict[int, ShardAudience] = defaultdict(ShardAudience)
    for client, email, has_contact in _holding(settings, audience):
        shard = found[partition_of(client, partitions)]
        shard.clients.append(client)
        if why := why_no_mail_can_be_written(email, has_contact=has_contact):
            shard.without_contact[client] = why
    return found


def _holding(
    settings: Settings, audience: EarlyAudience, client: str | None = None
) -> Iterable[tuple[str, str | None, bool]]:
    from shardpost.holders.spark.held_positions import holding_clients  # imports PySpark

    for batch in holding_clients(settings, audience.source, audience.as_of, client):
        columns = (batch.column(name).to_pylist() for name in ("client", "email", "has_contact"))
        yield from zip(*columns, strict=True)


def why_open(settings: Settings, audience: WeekAudience, client: str) -> str | None:
    """Return why a member of the audience is open yet; None if it is no known member."""
    match audience:
        case FrozenWeek(audience_erased_at=None):
            return NOT_MAILED if FrozenWeeks(settings).member(audience, client) else None
        case EarlyAudience():
            for _, email, has_contact in _holding(settings, audience, client):
                return why_no_mail_can_be_written(email, has_contact=has_contact) or NOT_MAILED
    return None


# Shards that are read in parallel.
MAX_CONCURRENT = 8


@dataclass(frozen=True)
class ListedClient:
    """A client that is in a state, and why."""

    client: str
    shard: int
    reason: str | None


def status_by_shard(
    settings: Settings,
    week: IsoWeek,
    audience: WeekAudience,
    partitions: int,
    chosen: Sequence[int] | None = None,
    *,
    wait: bool = False,
) -> list[ShardStatus]:
    """Return the status of each shard, or of the chosen ones; without an audience nobody is open.

    `unknown` includes the clients that are being sent at this moment. With `wait` it is up to the
    ledger's end, else up to the first transaction that is open.
    """
    members = audience_by_shard(settings, audience, partitions)

    def status(shard: int) -> ShardStatus:
        entries = ShardLedger(settings, week, shard).entries(wait=wait)
        return shard_status(shard, entries, members(shard))

    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        return list(pool.map(status, range(partitions) if chosen is None else chosen))


def shard_status(
    shard: int, entries: Iterable[LedgerEntry], audience: ShardAudience
) -> ShardStatus:
    """Return the status of one shard by the entries of its ledger, oldest first."""
    reasons = LedgerReasons(frozenset(EXPLAINED))
    index = LedgerIndex.fold(reasons.watch(entries))
    sending_to_unknown(index)
    return status_of(shard, index, reasons, audience)


def status_of(
    shard: int, index: LedgerIndex, reasons: LedgerReasons, audience: ShardAudience
) -> ShardStatus:
    """Count one shard: `reasons` are those of the states that are explained."""
    states = index.states(audience.clients)
    without = index.states(list(audience.without_contact)).count(None)
    counts = ShardCounts.of(shard, index.counts(), states.count(None), index.delivery_unknown)
    return ShardStatus(counts, _causes(reasons), without)


def _causes(reasons: LedgerReasons) -> dict[str, list[Cause]]:
    found = sorted(reasons.found.items())
    return {
        str(state): causes_of(
            (client, cause_of(reason, client)) for client, (one, reason) in found if one is state
        )
        for state in EXPLAINED
    }


def clients_in_state(
    settings: Settings, week: IsoWeek, audience: WeekAudience, partitions: int, state: str
) -> Iterator[ListedClient]:
    """Yield who is in one of the states that are counted, and why; by shard and client."""
    members = audience_by_shard(settings, audience, partitions)
    for shard in range(partitions):
        for client, reason in sorted(_listed(settings, week, shard, members(shard), state)):
            yield ListedClient(client, shard, reason)


def _listed(
    settings: Settings, week: IsoWeek, shard: int, audience: ShardAudience, state: str
) -> Iterable[tuple[str, str | None]]:
    reasons = LedgerReasons(_ledger_states(state))
    entries = reasons.watch(ShardLedger(settings, week, shard).entries())
    if state == "open":
        yield from _open(LedgerIndex.fold(entries), reasons, audience)
        return
    _read_all(entries)
    for client, (last, reason) in reasons.found.items():
        yield client, WHY_UNKNOWN if last is DeliveryState.SENDING else reason


def _open(
    index: LedgerIndex, reasons: LedgerReasons, audience: ShardAudience
) -> Iterator[tuple[str, str | None]]:
    for client, state in zip(audience.clients, index.states(audience.clients), strict=True):
        if state is None:
            _, reason = reasons.found.get(ledger_id(client), (None, None))
            yield client, audience.without_contact.get(client) or reason or NOT_MAILED


def _ledger_states(state: str) -> frozenset[State]:
    if state == "open":
        return frozenset({None})
    if state == DeliveryState.UNKNOWN:
        return frozenset({DeliveryState.UNKNOWN, DeliveryState.SENDING})
    return frozenset({DeliveryState(state)})


def _read_all(entries: Iterable[LedgerEntry]) -> None:
    for _ in entries:
        pass
