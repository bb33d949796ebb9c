"""The counts of one shard while its run goes on, and the log line that reports them."""

import logging
from collections import Counter
from dataclasses import dataclass, field

from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.shard_counts import ShardCounts, ShardReport

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 5.0


@dataclass
class Progress:
    """Clients of one shard by state; `audience_size` is how many there are in its audience."""

    week: IsoWeek
    shard: int
    audience_size: int
    states: Counter[DeliveryState]
    unknown_clients: set[str]
    closed: int = 0  # open clients that got a state
    sent_by_this_run: int = 0
    _logged_at: float = field(default=0.0, init=False)
    _logged: str = field(default="", init=False)

    @classmethod
    def of(cls, week: IsoWeek, shard: int, size: int, ledger_index: LedgerIndex) -> "Progress":
        """Return the counts as the ledger has them."""
        unknown = set(ledger_index.delivery_unknown)
        return cls(week, shard, size, ledger_index.counts(), unknown)

    def record(self, client: str, before: DeliveryState | None, after: DeliveryState) -> None:
        """Count a client's new state; `before` is None if it was open."""
        if before is None:
            self.closed += 1
        else:
            self.states[before] -= 1
        self.states[after] += 1
        self.unknown_clients.discard(client)
        if after is DeliveryState.UNKNOWN:
            self.unknown_clients.add(client)
        self.sent_by_this_run += after is DeliveryState.SENT

    def log_every_few_seconds(self, waiting: int, now: float) -> None:
        """Log the counts, unless that was done just now; `now` in monotonic seconds."""
        if now - self._logged_at >= PROGRESS_SECONDS:
            self._logged_at = now
            self.log(waiting)

    def log(self, waiting: int) -> None:
        """Log the counts; `waiting` is how many mails wait for a retry."""
        self._logged = self._line(waiting)
        log.info("%s shard %d: %s", self.week, self.shard, self._logged)

    def log_last(self) -> None:
        """Log the counts at the end of a run, unless they are those that were logged last."""
        if self._line(waiting=0) != self._logged:
            self.log(waiting=0)

    def report(self, open_at_start: int, error: str | None) -> ShardReport:
        """Return the counts and what stopped the shard.

        `open_at_start` is how many clients of the audience were open when the run began.
        """
        counts = self._counts(open_at_start - self.closed)
        return ShardReport(**vars(counts), error=error)

    def _counts(self, open_clients: int) -> ShardCounts:
        return ShardCounts.of(self.shard, self.states, open_clients, self.unknown_clients)

    def _line(self, waiting: int) -> str:
        counts = self._counts(open_clients=0)  # how many are open is known at the end only
        return (
            f"{counts.sent:,} of {self.audience_size:,} sent, {counts.failed:,} failed,"
            f" {counts.suppressed:,} suppressed, {counts.unknown:,} unknown,"
            f" {waiting:,} waiting for a retry ({self.sent_by_this_run:,} sent by this run)"
        )
