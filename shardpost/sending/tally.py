"""How a shard stands: clients by state, who is in doubt, and the line of progress that says it."""

import logging
from collections import Counter
from dataclasses import dataclass, field

from shardpost.domain.ledger import State
from shardpost.domain.weeks import IsoWeek

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 5.0


@dataclass(frozen=True)
class Report:
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
class Tally:
    """The counts of one shard as its run goes on; `total` is the size of its audience."""

    week: IsoWeek
    shard: int
    total: int
    counts: Counter[State]
    unknown: dict[str, None]
    no_more_open: int = 0
    mailed: int = 0
    said_at: float = field(default=0.0)

    def settle(self, client: str, before: State | None, after: State) -> None:
        """Count a client's new state."""
        if before is None:
            self.no_more_open += 1
        else:
            self.counts[before] -= 1
        self.counts[after] += 1
        self.unknown.pop(client, None)
        if after is State.UNKNOWN:
            self.unknown[client] = None
        self.mailed += after is State.SENT

    def say(self, waiting: int, now: float, *, at_once: bool = False) -> None:
        """Log the progress, every few seconds."""
        if at_once or now - self.said_at >= PROGRESS_SECONDS:
            self.said_at = now
            log.info("%s shard %d: %s", self.week, self.shard, self._progress(waiting))

    def _progress(self, waiting: int) -> str:
        counts = self.counts
        return (
            f"{counts[State.SENT]:,} of {self.total:,} sent, {counts[State.FAILED]:,} failed,"
            f" {counts[State.SUPPRESSED]:,} suppressed, {counts[State.UNKNOWN]:,} unknown,"
            f" {waiting:,} to be tried again ({self.mailed:,} sent by this run)"
        )

    def report(self, seen_open: int, error: str | None) -> Report:
        """Return the report.

        `seen_open` is how many of the audience were open when the run began.
        """
        return Report(
            shard=self.shard,
            sent=self.counts[State.SENT],
            failed=self.counts[State.FAILED],
            unknown=self.counts[State.UNKNOWN],
            suppressed=self.counts[State.SUPPRESSED],
            open=seen_open - self.no_more_open,
            unknown_clients=tuple(sorted(self.unknown)),
            error=error,
        )
