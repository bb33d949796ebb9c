"""What a run has made of the clients of a shard, as the ledger has it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardpost.settings import Settings
from shardpost.weekly_email.ledger_topic import ShardLedger
from shardpost.weekly_email.model.ledger_index import LedgerIndex, sending_to_unknown
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import ShardReport, ShardStatus
from tests.support.installed import installed


@dataclass(frozen=True)
class SentShard(ShardStatus):
    """The counts of a shard, and what stopped its run."""

    error: str | None = None


def counted(
    settings: Settings, week: IsoWeek, clients: Sequence[str], report: ShardReport
) -> SentShard:
    """Count these clients, the audience of a shard, after its run.

    Brokers write the markers of a transaction after they have answered: they are waited for.
    """
    ledger = ShardLedger(installed(settings).kafka, week, report.shard)
    index = LedgerIndex.fold(ledger.entries(wait=True))
    sending_to_unknown(index)
    still_open = index.states(clients).count(None)
    unknown = sorted(about.client for about in index.delivery_unknown)
    counts: dict[str, Any] = {str(one): count for one, count in index.counts().items() if count}
    counts |= {"open": still_open, "unknown_clients": tuple(unknown)}
    return SentShard(report.shard, **counts, error=report.error)
