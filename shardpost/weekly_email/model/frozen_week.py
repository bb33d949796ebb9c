"""A week whose audience is frozen."""

from dataclasses import dataclass
from datetime import datetime

from shardpost.errors import ShardpostError


@dataclass(frozen=True)
class FrozenWeek:
    """One row of `frozen_weeks`.

    From which snapshot, as of when, at which version of `audiences`, and whose stock counts.
    `shards` is the number of partitions of the ledger's topic, `recipients` that of clients.
    """

    week: str
    snapshot: int
    as_of: datetime
    frozen_at: datetime
    audience_version: int
    shards: int
    recipients: int
    country: str

    def require_shards(self, shards: int) -> None:
        """Refuse a ledger that has another number of partitions than the audience has shards."""
        if shards != self.shards:
            raise ShardpostError(
                f"the audience of {self.week} was frozen in {self.shards} shards, and the ledger's"
                f" topic has {shards} partitions: their number must not be changed"
            )
