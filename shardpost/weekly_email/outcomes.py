"""The effect of a mail's outcome on its client: ledger, counts, next attempt.

A ledger entry is counted and logged when it is added, and committed by `flush`, one transaction for
many. Mails are queued for their next attempt, at the time that model/retry.py computes.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from shardpost.errors import shown, single_line
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.email_context import LONGEST_NAME
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.retry import (
    Final,
    LeaveOpen,
    Retry,
    SmtpOutcome,
    TemporaryFailure,
    next_step,
)
from shardpost.weekly_email.model.server_health import Refusal, ServerHealth
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.send_plan import MailToSend
from shardpost.weekly_email.smtp_server import SmtpServer
from shardpost.wording import counted

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 5.0


@dataclass
class Progress:
    """Clients of one shard by state; `audience_size` is the size of its audience."""

    week: IsoWeek
    shard: int
    audience_size: int
    states: Counter[DeliveryState]
    sent_by_this_run: int = 0
    _logged_at: float = field(default=0.0, init=False)
    _logged: str = field(default="", init=False)

    def record(self, before: DeliveryState | None, after: DeliveryState) -> None:
        """Count a client's new state; `before` is None for open."""
        if before is not None:
            self.states[before] -= 1
        self.states[after] += 1
        self.sent_by_this_run += after is DeliveryState.SENT

    def log_every_few_seconds(self, waiting: int, now: float) -> None:
        """Log the counts, unless logged just now; `now` in monotonic seconds."""
        if now - self._logged_at >= PROGRESS_SECONDS:
            self._logged_at = now
            self.log(waiting)

    def log(self, waiting: int) -> None:
        """Log the counts; `waiting` is the number of mails waiting for a retry."""
        self._logged = self._line(waiting)
        log.info("%s shard %d: %s", self.week, self.shard, self._logged)

    def log_last(self) -> None:
        """Log the counts at the end of a run, unless they were just logged."""
        if self._line(waiting=0) != self._logged:
            self.log(waiting=0)

    def _line(self, waiting: int) -> str:
        count = {str(state): f"{self.states[state]:,}" for state in DeliveryState}
        audience = counted(self.audience_size, "client")
        return (
            f"{count['sent']} sent ({self.sent_by_this_run:,} by this run), {count['failed']}"
            f" failed, {count['suppressed']} suppressed, {count['unknown']} unknown,"
            f" {waiting:,} waiting for a retry; the audience has {audience}"
        )


MAX_QUEUED = 2000  # mails that wait for a retry; beyond that no new ones are started


@dataclass(order=True)
class Attempt:
    """Attempt `number` at a mail, due at `due` (monotonic seconds), after `lost` connections."""

    due: float
    order: int
    task: MailToSend = field(compare=False)
    number: int = field(default=1, compare=False)
    lost: int = field(default=0, compare=False)


class RetryQueue:
    """Attempts ordered by due time."""

    def __init__(self) -> None:
        self._heap: list[Attempt] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def delay(self) -> float:
        """Seconds until the first attempt is due."""
        return self._heap[0].due - time.monotonic()

    def take_due(self, most: int) -> list[Attempt]:
        """Remove and return the due attempts."""
        due: list[Attempt] = []
        while len(due) < most and self._heap and self.delay <= 0:
            due.append(heappop(self._heap))
        return due

    def restore(self, attempt: Attempt) -> None:
        """Add an attempt that was not made."""
        heappush(self._heap, attempt)

    def add(self, failed: Attempt, retry: Retry) -> None:
        """Add the next attempt at a mail."""
        due = time.monotonic() + retry.delay
        heappush(self._heap, Attempt(due, failed.order, failed.task, retry.attempt, retry.lost))


MOST_PENDING = 1000  # entries in one transaction, about


class DeliveryRecords:
    """The entries of one shard's run."""

    def __init__(self, ledger: Ledger, progress: Progress) -> None:
        self._ledger, self._progress = ledger, progress
        self._pending: list[LedgerEntry] = []

    def write(self, entry: LedgerEntry) -> None:
        """Add an entry to the next transaction."""
        self._pending.append(entry)

    def finish(self, entry: LedgerEntry, before: DeliveryState | None) -> None:
        """Add and count a client's final state; None: it is not mailed yet."""
        if entry.reason:
            state = entry.state or "not mailed yet"
            log.info("%s: %s, %s", self._label(entry.client), state, entry.reason)
        if entry.state is None:
            return
        self._progress.record(before, entry.state)
        self.write(entry)
        if len(self._pending) >= MOST_PENDING:
            self.flush()

    def revert(self, attempt: Attempt, reason: str) -> None:
        """Restore the state before the attempt, since the mail was certainly not sent."""
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


class Outcomes:
    """The outcomes of one shard's run."""

    def __init__(self, server: SmtpServer, records: DeliveryRecords, retries: RetryQueue) -> None:
        self._records, self._retries = records, retries
        self._attempts = server.mail_attempts
        self.health = ServerHealth(server.health_limits)
        self.left_open: list[str] = []

    def apply(self, attempt: Attempt, outcome: SmtpOutcome) -> None:
        """Act on the outcome of an attempt."""
        self.health.record(outcome, is_first=attempt.number == 1)
        match next_step(outcome, attempt.number, self._attempts, attempt.lost):
            case Final(DeliveryState.FAILED, reason):
                self._refused(attempt, outcome, reason or "")
            case Final(state, reason):
                self._records.finish(attempt.task.entry(state, reason), attempt.task.before)
                if state is DeliveryState.SENT:
                    self._fail(self.health.accept())
            case Retry(reason) as retry:
                self._records.revert(attempt, reason)
                self._retries.add(attempt, retry)
            case LeaveOpen(reason):
                self._leave_open(attempt, reason)

    def finish(self) -> None:
        """Fail the refused clients that are at fault according to the shard's own answers."""
        self._fail(self.health.finish())

    def _refused(self, attempt: Attempt, outcome: SmtpOutcome, reason: str) -> None:
        task = attempt.task
        entry = task.entry(DeliveryState.FAILED, reason)
        if task.before is DeliveryState.FAILED:  # does not reflect on the server
            self._records.finish(entry, task.before)
        elif isinstance(outcome, TemporaryFailure) and self.health.is_deferring:
            self._leave_open(attempt, f"{reason}, as for many other mails")
            self._fail(self.health.refuse(reason, None))
        else:
            self._records.revert(attempt, f"{reason}; not final until other mails are accepted")
            self._fail(self.health.refuse(reason, Refusal(entry, task.before)))

    def _fail(self, refusals: Iterable[Refusal]) -> None:
        for refusal in refusals:
            self._records.finish(refusal.entry, refusal.before)

    def _leave_open(self, attempt: Attempt, reason: str) -> None:
        self._records.revert(attempt, reason)
        self.left_open.append(f"{shown(attempt.task.mail.client)}: {reason}")
