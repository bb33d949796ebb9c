"""The sender of one shard: ledger, then mail, then ledger, each client exactly once.

One transaction holds the outcomes of the last group of mails and `sending` of the next; the mail
server hears of a group only after that commit returned. So a run that dies leaves at most one
client per open connection unknown, and the next run finds which.
"""

import logging
import time
from collections.abc import Callable, Iterator

from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.circuit_breaker import CircuitBreaker
from shardpost.weekly_email.model.email_context import LONGEST_NAME
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.mail_retry_policy import (
    Final,
    LeaveOpen,
    MailRetryPolicy,
    Retry,
    next_step,
)
from shardpost.weekly_email.model.rate_limit import RateLimit
from shardpost.weekly_email.model.single_line import single_line
from shardpost.weekly_email.model.smtp_outcome import NotSent, SmtpOutcome
from shardpost.weekly_email.progress import Progress
from shardpost.weekly_email.retry_queue import Attempt, RetryQueue
from shardpost.weekly_email.send_plan import MailToSend, NoMail
from shardpost.weekly_email.smtp import MailServerError
from shardpost.weekly_email.smtp_connections import SmtpConnections

log = logging.getLogger(__name__)

# Entries that one transaction holds at most, about.
MOST_PENDING = 1000
# Before a longer wait than this the outcomes so far are written, seconds.
LONGEST_HELD = 0.2
# A wait is cut into pieces, so that a signal to stop is noticed, seconds.
WAIT_SECONDS = 0.5


class StoppedError(ShardpostError):
    """The shard stopped before its end; clients that were not mailed stay open."""


class ShardSender:
    """Does the steps of a plan, until nothing is left or something stops it."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        progress: Progress,
        rate_limit: RateLimit,
        stop_reason: Callable[[], str | None],
    ) -> None:
        self._ledger, self._progress, self._rate_limit = ledger, progress, rate_limit
        self._stop_reason = stop_reason
        self._connections, self._retry_queue = SmtpConnections(settings), RetryQueue()
        self._retry_policy = MailRetryPolicy.of(settings)
        self._breaker = CircuitBreaker(
            most_silent=settings.mail_breaker,
            most_lost=settings.mail_attempts * settings.mail_connections,
        )
        self._pending: list[LedgerEntry] = []
        self._left_open: list[str] = []
        self._started = 0

    def run(self, steps: Iterator[MailToSend | NoMail]) -> None:
        """Do all steps; raises what stopped the shard, with the outcomes so far in the ledger."""
        try:
            while group := self._next_group(steps):
                self._send(group)
        except (StoppedError, MailServerError):
            self.flush()
            raise
        self.flush()
        if self._left_open:
            first = "; ".join(self._left_open[:3])
            raise StoppedError(f"{len(self._left_open)} clients stay open: {first}")

    def write(self, entry: LedgerEntry) -> None:
        """Add an entry to the next transaction."""
        self._pending.append(entry)

    def flush(self) -> None:
        """Write the pending entries now."""
        pending, self._pending = self._pending, []
        self._ledger.write(pending)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    # The next group

    def _next_group(self, steps: Iterator[MailToSend | NoMail]) -> list[Attempt]:
        """Return the mails to send together next, at most one per connection; none at the end."""
        while True:
            most = self._wait_for_rate_limit()
            group = self._retry_queue.take_due(most)
            if not self._retry_queue.is_full:
                self._add_fresh(steps, group, most)
            if group or not self._retry_queue:
                return group
            self._wait(self._retry_queue.delay)

    def _add_fresh(
        self, steps: Iterator[MailToSend | NoMail], group: list[Attempt], most: int
    ) -> None:
        while len(group) < most and (step := next(steps, None)) is not None:
            if isinstance(step, MailToSend):
                self._started += 1
                group.append(Attempt(0, self._started, step))
            else:
                self._log_state(step.entry)
                self._finish(step.entry, step.before)
                if len(self._pending) >= MOST_PENDING:
                    self.flush()

    def _wait_for_rate_limit(self) -> int:
        """Wait until at least one mail may be sent; return how many may be sent at once."""
        while (delay := self._rate_limit.delay(time.monotonic())) > 0:
            self._wait(delay)
        self._raise_if_stopped()
        by_rate = self._rate_limit.allowed(time.monotonic())
        return int(min(len(self._connections), self._breaker.allowed, by_rate))

    def _wait(self, seconds: float) -> None:
        if seconds > LONGEST_HELD:
            self.flush()
        self._raise_if_stopped()
        self._progress.log_every_few_seconds(len(self._retry_queue), time.monotonic())
        time.sleep(max(0.0, min(seconds, WAIT_SECONDS)))

    def _raise_if_stopped(self) -> None:
        if reason := self._stop_reason():
            raise StoppedError(reason)

    # Sending it

    def _send(self, group: list[Attempt]) -> None:
        self._connections.open(len(group))
        for attempt in group[len(self._connections) :]:
            self._retry_queue.restore(attempt)
        group = group[: len(self._connections)]
        self._rate_limit.spend(len(group))
        mails = [attempt.task.mail for attempt in group]
        for mail in mails:
            self.write(LedgerEntry(mail.client, DeliveryState.SENDING, mail.message_id))
        self.flush()
        outcomes = self._connections.send(mails)
        for attempt, outcome in zip(group, outcomes, strict=True):
            self._breaker.record(outcome)
            self._apply(attempt, outcome)
        self._progress.log_every_few_seconds(len(self._retry_queue), time.monotonic())
        self._raise_if_server_fails(outcomes)

    def _raise_if_server_fails(self, outcomes: list[SmtpOutcome]) -> None:
        if not self._connections:
            last = next(outcome for outcome in outcomes if isinstance(outcome, NotSent))
            raise StoppedError(last.reason)
        if reason := self._breaker.stop_reason:
            raise StoppedError(reason)

    # Its outcomes

    def _apply(self, attempt: Attempt, outcome: SmtpOutcome) -> None:
        mail = attempt.task.mail
        match next_step(outcome, attempt.number, self._retry_policy):
            case Final(state, reason):
                entry = LedgerEntry(mail.client, state, mail.message_id, reason)
                if reason:
                    self._log_state(entry)
                self._finish(entry, attempt.task.before)
            case Retry(reason) as retry:
                self._revert(attempt, reason)
                self._retry_queue.add(attempt, retry)
            case LeaveOpen(reason):
                self._revert(attempt, reason)
                self._left_open.append(f"{mail.client}: {reason}")

    def _finish(self, entry: LedgerEntry, before: DeliveryState | None) -> None:
        assert entry.state is not None  # noqa: S101 - only _revert opens a client
        self._progress.record(entry.client, before, entry.state)
        self.write(entry)

    def _revert(self, attempt: Attempt, reason: str) -> None:
        """Write the state before the attempt again: it is certain that the mail was not sent."""
        mail, before = attempt.task.mail, attempt.task.before
        log.info("%s: attempt %d: %s", self._label(mail.client), attempt.number, reason)
        self.write(LedgerEntry(mail.client, before, mail.message_id, f"reverted: {reason}"))

    def _log_state(self, entry: LedgerEntry) -> None:
        log.info("%s: %s, %s", self._label(entry.client), entry.state, entry.reason)

    def _label(self, client: str) -> str:
        name = single_line(client, LONGEST_NAME)
        return f"{self._progress.week} shard {self._progress.shard} {name}"
