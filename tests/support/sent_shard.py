"""What a run has made of the clients of a shard, as the ledger has it."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardpost.settings import Settings
from shardpost.weekly_email.ledger_topic import ShardLedger
from shardpost.weekly_email.model.ledger_index import LedgerIndex, sending_to_unknown
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import ShardCounts, ShardReport
from tests.support.installed import installed


@dataclass(frozen=True)
class SentShard(ShardCounts):
    """The counts of a shard, and what stopped its run."""

    error: str | None = None


def counted(
    settings: Settings, week: IsoWeek, clients: Sequence[str], report: ShardReport
) -> SentShard:
    """Count these clients, the audience of a shard, after its run."""
    index = LedgerIndex.fold(ShardLedger(installed(settings).kafka, week, report.shard).entries())
    sending_to_unknown(index)
    still_open = index.states(clients).count(None)
    unknown = [about.client for about in index.delivery_unknown]
    counts = ShardCounts.of(report.shard, index.counts(), still_open, unknown)
    return SentShard(**vars(counts), error=report.error)
