"""What a shard's run writes into the ledger: entry by entry, one transaction for many.

An entry is counted and logged when it is added, and committed by `flush`.
"""

import logging

from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.email_context import LONGEST_NAME
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.single_line import single_line
from shardpost.weekly_email.progress import Progress
from shardpost.weekly_email.retry_queue import Attempt

log = logging.getLogger(__name__)

# Entries that one transaction holds at most, about.
MOST_PENDING = 1000


class DeliveryRecords:
    """The entries of one shard's run."""

    def __init__(self, ledger: Ledger, progress: Progress) -> None:
        self._ledger, self._progress = ledger, progress
        self._pending: list[LedgerEntry] = []

    def write(self, entry: LedgerEntry) -> None:
        """Add an entry to the next transaction."""
        self._pending.append(entry)

    def finish(self, entry: LedgerEntry, before: DeliveryState | None) -> None:
        """Add the state with which a client is done, and count it."""
        assert entry.state is not None  # noqa: S101 - only `revert` opens a client
        if entry.reason:
            log.info("%s: %s, %s", self._label(entry.client), entry.state, entry.reason)
        self._progress.record(entry.client, before, entry.state)
        self.write(entry)
        if len(self._pending) >= MOST_PENDING:
            self.flush()

    def leave_open(self, client: str, reason: str) -> None:
        """Log why a client stays open that was not mailed; nothing is written."""
        log.info("%s: stays open, %s", self._label(client), reason)

    def revert(self, attempt: Attempt, reason: str) -> None:
        """Add the state before the attempt again: it is certain that the mail was not sent."""
        task = attempt.task
        log.info("%s: attempt %d: %s", self._label(task.mail.client), attempt.number, reason)
        self.write(task.entry_before(f"reverted: {reason}"))

    def flush(self) -> None:
        """Commit the pending entries now."""
        pending, self._pending = self._pending, []
        self._ledger.write(pending)

    def _label(self, client: str) -> str:
        name = single_line(client, LONGEST_NAME)
        return f"{self._progress.week} shard {self._progress.shard} {name}"
