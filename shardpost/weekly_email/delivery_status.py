"""The delivery status of a week, from its frozen audience and its ledger: no JVM, no writes."""

from concurrent.futures import ThreadPoolExecutor

from shardpost.settings import Settings
from shardpost.weekly_email import frozen_weeks, ledger_topic
from shardpost.weekly_email.model.frozen_week import FrozenWeek
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.shard_counts import ShardCounts
from shardpost.weekly_email.model.unknown_deliveries import sending_to_unknown

# Shards that are read in parallel.
MAX_CONCURRENT = 8


def status_by_shard(settings: Settings, week: IsoWeek, shards: int) -> list[ShardCounts]:
    """Return the counts of each shard; before the freeze no client is open.

    `unknown` includes the clients that are being sent at this moment.
    """
    frozen = frozen_weeks.find(settings, week)
    if frozen is not None:
        frozen.require_shards(shards)
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        return list(pool.map(lambda shard: _status(settings, week, frozen, shard), range(shards)))


def _status(
    settings: Settings, week: IsoWeek, frozen: FrozenWeek | None, shard: int
) -> ShardCounts:
    ledger_index = LedgerIndex.fold(ledger_topic.read(settings, week, shard))
    sending_to_unknown(ledger_index)
    audience = frozen_weeks.clients(settings, frozen, shard) if frozen else []
    open_clients = ledger_index.states(audience).count(None)
    unknown = ledger_index.delivery_unknown
    return ShardCounts.of(shard, ledger_index.counts(), open_clients, unknown)
