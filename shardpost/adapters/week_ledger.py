"""How a week stands, from its frozen audience and its ledger: no JVM, nothing written."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from shardpost.adapters import frozen_weeks, ledger
from shardpost.adapters.frozen_weeks import FrozenWeek
from shardpost.domain.book import Book
from shardpost.domain.ledger import State
from shardpost.domain.weeks import IsoWeek
from shardpost.settings import Settings

# Shards that are read side by side.
AT_ONCE = 8


@dataclass(frozen=True)
class ShardStand:
    """How a shard stands; `unknown` also counts who is being mailed at this very moment."""

    shard: int
    sent: int
    failed: int
    suppressed: int
    open: int
    unknown: tuple[str, ...]


def stands(settings: Settings, week: IsoWeek, shards: int) -> list[ShardStand]:
    """Return how each shard stands. Before the freeze nobody is open."""
    frozen = frozen_weeks.find(settings, week)
    if frozen is not None:
        frozen.require_shards(shards)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda shard: _stand(settings, week, frozen, shard), range(shards)))


def _stand(settings: Settings, week: IsoWeek, frozen: FrozenWeek | None, shard: int) -> ShardStand:
    book = Book.fold(ledger.read(settings, week, shard))
    book.give_up_sending()
    audience = frozen_weeks.clients(settings, frozen, shard) if frozen else []
    counts = book.counts()
    return ShardStand(
        shard,
        counts[State.SENT],
        counts[State.FAILED],
        counts[State.SUPPRESSED],
        book.states(audience).count(None),
        tuple(sorted(book.doubtful)),
    )
