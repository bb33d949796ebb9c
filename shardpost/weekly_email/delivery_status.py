"""How a week stands, from its frozen audience and its ledger: no JVM, nothing written."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from shardpost.settings import Settings
from shardpost.weekly_email import frozen_weeks, ledger_topic
from shardpost.weekly_email.frozen_weeks import FrozenWeek
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.ledger_index import LedgerIndex

# Shards that are read side by side.
AT_ONCE = 8


@dataclass(frozen=True)
class ShardStatus:
    """How a shard stands; `unknown` also counts who is being mailed at this very moment."""

    shard: int
    sent: int
    failed: int
    suppressed: int
    open: int
    unknown: tuple[str, ...]


def status_by_shard(settings: Settings, week: IsoWeek, shards: int) -> list[ShardStatus]:
    """Return how each shard stands. Before the freeze nobody is open."""
    frozen = frozen_weeks.find(settings, week)
    if frozen is not None:
        frozen.require_shards(shards)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda shard: _stand(settings, week, frozen, shard), range(shards)))


def _stand(settings: Settings, week: IsoWeek, frozen: FrozenWeek | None, shard: int) -> ShardStatus:
    book = LedgerIndex.fold(ledger_topic.read(settings, week, shard))
    book.give_up_sending()
    audience = frozen_weeks.clients(settings, frozen, shard) if frozen else []
    counts = book.counts()
    return ShardStatus(
        shard,
        counts[DeliveryState.SENT],
        counts[DeliveryState.FAILED],
        counts[DeliveryState.SUPPRESSED],
        book.states(audience).count(None),
        tuple(sorted(book.doubtful)),
    )
