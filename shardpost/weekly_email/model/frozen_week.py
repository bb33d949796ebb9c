"""A week whose audience is frozen."""

from dataclasses import dataclass
from datetime import datetime

from shardpost.errors import ShardpostError


@dataclass(frozen=True)
class FrozenWeek:
    """One row of `frozen_weeks`.

    From which snapshot, as of when, at which version of `audiences`, and whose stock counts.
    `shards` is the number of partitions of the ledger's topic, `recipients` that of clients.
    Once `audience_erased_at` is set, the audience is gone, or about to go: nobody reads it.
    """

    week: str
    snapshot: int
    as_of: datetime
    frozen_at: datetime
    audience_version: int
    shards: int
    recipients: int
    country: str
    audience_erased_at: datetime | None = None

    @property
    def why_no_audience(self) -> str | None:
        """Why nobody can be mailed of the week any more; None while its audience is there."""
        if self.audience_erased_at is None:
            return None
        return (
            f"the audience of {self.week}, {self.recipients} clients, was erased on"
            f" {self.audience_erased_at:%Y-%m-%d} (SHARDPOST_AUDIENCE_DAYS): nobody can be mailed"
            " of that week any more"
        )

    def require_audience(self) -> None:
        """Refuse a week whose audience was erased."""
        if why := self.why_no_audience:
            raise ShardpostError(
                f"{why}; `shardpost emails --week {self.week}` says what its ledger knows"
            )

    def require_shards(self, shards: int) -> None:
        """Refuse a ledger that has another number of partitions than the audience has shards."""
        if shards != self.shards:
            raise ShardpostError(
                f"the audience of {self.week} was frozen in {self.shards} shards, and the ledger's"
                f" topic has {shards} partitions: their number must not be changed"
            )
