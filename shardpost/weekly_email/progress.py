"""How a shard stands: clients by state, who is in doubt, and the line of progress that says it."""

import logging
from collections import Counter
from dataclasses import dataclass, field

from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger import DeliveryState

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 5.0


@dataclass(frozen=True)
class ShardReport:
    """How a shard stood when its run ended.

    The ledger's counts, `open` of the audience, and what stopped it.
    """

    shard: int
    sent: int = 0
    failed: int = 0
    unknown: int = 0
    suppressed: int = 0
    open: int = 0
    unknown_clients: tuple[str, ...] = ()
    error: str | None = None


@dataclass
class Progress:
    """The counts of one shard as its run goes on; `total` is the size of its audience."""

    week: IsoWeek
    shard: int
    total: int
    counts: Counter[DeliveryState]
    unknown: dict[str, None]
    no_more_open: int = 0
    mailed: int = 0
    said_at: float = field(default=0.0)

    def settle(self, client: str, before: DeliveryState | None, after: DeliveryState) -> None:
        """Count a client's new state."""
        if before is None:
            self.no_more_open += 1
        else:
            self.counts[before] -= 1
        self.counts[after] += 1
        self.unknown.pop(client, None)
        if after is DeliveryState.UNKNOWN:
            self.unknown[client] = None
        self.mailed += after is DeliveryState.SENT

    def say(self, waiting: int, now: float, *, at_once: bool = False) -> None:
        """Log the progress, every few seconds."""
        if at_once or now - self.said_at >= PROGRESS_SECONDS:
            self.said_at = now
            log.info("%s shard %d: %s", self.week, self.shard, self._progress(waiting))

    def _progress(self, waiting: int) -> str:
        counts = self.counts
        return (
            f"{counts[DeliveryState.SENT]:,} of {self.total:,} sent, {counts[DeliveryState.FAILED]:,} failed,"
            f" {counts[DeliveryState.SUPPRESSED]:,} suppressed, {counts[DeliveryState.UNKNOWN]:,} unknown,"
            f" {waiting:,} to be tried again ({self.mailed:,} sent by this run)"
        )

    def report(self, seen_open: int, error: str | None) -> ShardReport:
        """Return the report.

        `seen_open` is how many of the audience were open when the run began.
        """
        return ShardReport(
            shard=self.shard,
            sent=self.counts[DeliveryState.SENT],
            failed=self.counts[DeliveryState.FAILED],
            unknown=self.counts[DeliveryState.UNKNOWN],
            suppressed=self.counts[DeliveryState.SUPPRESSED],
            open=seen_open - self.no_more_open,
            unknown_clients=tuple(sorted(self.unknown)),
            error=error,
        )
