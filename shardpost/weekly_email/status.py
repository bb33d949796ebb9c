"""The delivery status of a week, from its audience and its ledger: no JVM, no writes.

`email` counts with it at its end, and `emails` at any time.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from shardpost.settings import Settings
from shardpost.weekly_email import ledger_topic
from shardpost.weekly_email.audiences import NOT_MAILED, ShardAudience, WeekAudience, by_shard
from shardpost.weekly_email.ledger_topic import LedgerReasons, State
from shardpost.weekly_email.model.ledger import (
    REASON,
    DeliveryState,
    LedgerEntry,
    LedgerIndex,
    ledger_id,
    sending_to_unknown,
)
from shardpost.weekly_email.model.report import (
    EXPLAINED,
    Cause,
    ShardCounts,
    ShardStatus,
    cause_of,
    causes_of,
)
from shardpost.weekly_email.model.week import IsoWeek

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
    members = by_shard(settings, audience, partitions)

    def status(shard: int) -> ShardStatus:
        entries = ledger_topic.read(settings, week, shard, wait=wait)
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
    members = by_shard(settings, audience, partitions)
    for shard in range(partitions):
        for client, reason in sorted(_listed(settings, week, shard, members(shard), state)):
            yield ListedClient(client, shard, reason)


def _listed(
    settings: Settings, week: IsoWeek, shard: int, audience: ShardAudience, state: str
) -> Iterable[tuple[str, str | None]]:
    reasons = LedgerReasons(_ledger_states(state))
    entries = reasons.watch(ledger_topic.read(settings, week, shard))
    if state == "open":
        yield from _open(LedgerIndex.fold(entries), reasons, audience)
        return
    _read_all(entries)
    for client, (last, reason) in reasons.found.items():
        yield client, REASON if last is DeliveryState.SENDING else reason


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
