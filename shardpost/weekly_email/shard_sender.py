"""The sender of one shard: ledger, then mail, then ledger, each client exactly once.

One transaction holds the outcomes of the last group of mails and `sending` of the next; the mail
server hears of a group only after that commit returned. So a run that dies leaves at most one
client per open connection in doubt, and the next run finds which.
"""

import logging
import time
from collections.abc import Callable, Iterator

from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.delivery import (
    Again,
    Final,
    LeaveOpen,
    NoReply,
    NotSent,
    Outcome,
    next_step,
)
from shardpost.weekly_email.model.holdings import neutral
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.message import NAME
from shardpost.weekly_email.model.rate_limit import RateLimit
from shardpost.weekly_email.progress import Progress
from shardpost.weekly_email.retry_queue import Attempt, RetryQueue
from shardpost.weekly_email.send_plan import Decided, ToSend
from shardpost.weekly_email.smtp import MailServerError
from shardpost.weekly_email.smtp_connections import SmtpConnections

log = logging.getLogger(__name__)

# Entries that one transaction holds at most, about.
MOST_PENDING = 1000
# Outcomes are written at once rather than held for a wait longer than this, seconds.
LONGEST_HELD = 0.2
NAP = 0.5


class StoppedError(ShardpostError):
    """The shard stopped before its end; what is not mailed stays open."""


class ShardSender:
    """Sends what the plan says, until nothing is left or something stops it."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        tally: Progress,
        pace: RateLimit,
        stop: Callable[[], str | None],
    ) -> None:
        self._settings, self._ledger, self._tally = settings, ledger, tally
        self._pace, self._stop = pace, stop
        self._connections, self._waiting = SmtpConnections(settings), RetryQueue(settings)
        self._pending: list[LedgerEntry] = []
        self._left: list[str] = []
        self._order = self._silent = self._lost = 0
        self._answered = False

    def run(self, steps: Iterator[ToSend | Decided]) -> None:
        """Do all steps; raises what stopped the shard, with the outcomes so far in the ledger."""
        try:
            while group := self._next_group(steps):
                self._send(group)
        except (StoppedError, MailServerError):
            self.flush()
            raise
        self.flush()
        if self._left:
            raise StoppedError(f"left open, {len(self._left)} clients: {'; '.join(self._left[:3])}")

    def write(self, entry: LedgerEntry) -> None:
        """Add an entry to the next transaction."""
        self._pending.append(entry)

    def flush(self) -> None:
        """Write what is to be written now, without anything to send."""
        pending, self._pending = self._pending, []
        self._ledger.write(pending)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    # Taking up

    def _next_group(self, steps: Iterator[ToSend | Decided]) -> list[Attempt]:
        """Return the mails to be sent together next, at most one a connection; none at the end."""
        while True:
            room = self._room()
            group = self._waiting.due(room)
            if not self._waiting.is_full:
                self._take_fresh(steps, group, room)
            if group or not self._waiting:
                return group
            self._nap(self._waiting.delay)

    def _take_fresh(
        self, steps: Iterator[ToSend | Decided], group: list[Attempt], room: int
    ) -> None:
        while len(group) < room and (step := next(steps, None)) is not None:
            if isinstance(step, ToSend):
                self._order += 1
                group.append(Attempt(0, self._order, step))
                continue
            entry = step.entry
            log.info("%s: %s, %s", self._about(entry.client), entry.state, entry.reason)
            self._settle(entry, step.before)
            if len(self._pending) >= MOST_PENDING:
                self.flush()

    def _room(self) -> int:
        """Return how many mails may go at once; waits where the rate says so.

        A server that has not answered yet, or has just fallen silent, gets no more mails than would
        stop us.
        """
        while (delay := self._pace.delay(time.monotonic())) > 0:
            self._nap(delay)
        self._heed_stop()
        room = len(self._connections)
        if self._silent or not self._answered:
            room = min(room, self._settings.mail_breaker - self._silent)
        return int(min(room, self._pace.allowed(time.monotonic())))

    def _nap(self, seconds: float) -> None:
        if seconds > LONGEST_HELD:
            self.flush()
        self._heed_stop()
        self._tally.say(len(self._waiting), time.monotonic())
        time.sleep(max(0.0, min(seconds, NAP)))

    def _heed_stop(self) -> None:
        if why := self._stop():
            raise StoppedError(why)

    # Sending

    def _send(self, group: list[Attempt]) -> None:
        self._connections.open(len(group))
        for attempt in group[len(self._connections) :]:
            self._waiting.put_back(attempt)
        group = group[: len(self._connections)]
        self._pace.spend(len(group))
        mails = [attempt.task.mail for attempt in group]
        sending = [
            LedgerEntry(mail.client, DeliveryState.SENDING, mail.message_id) for mail in mails
        ]
        pending, self._pending = self._pending, []
        self._ledger.write([*pending, *sending])
        outcomes = self._connections.send(mails)
        for attempt, outcome in zip(group, outcomes, strict=True):
            self._note(attempt, outcome)
        self._tally.say(len(self._waiting), time.monotonic())
        self._judge_server(outcomes)

    def _judge_server(self, outcomes: list[Outcome]) -> None:
        """Stop the shard where the server falls silent again and again, or cannot be reached."""
        if not self._connections:
            last = next(outcome for outcome in outcomes if isinstance(outcome, NotSent))
            raise StoppedError(last.reason)
        if self._silent >= self._settings.mail_breaker:
            raise StoppedError(
                f"the mail server gave no answer after the end of {self._silent} mails in a row"
                " (SHARDPOST_MAIL_BREAKER): these are unknown, the rest is left open"
            )
        if self._lost >= self._settings.mail_attempts * self._settings.mail_connections:
            raise StoppedError(
                f"the mail server closed {self._lost} connections in a row without taking a mail:"
                " what is not mailed is left open"
            )

    # Outcomes

    def _note(self, attempt: Attempt, outcome: Outcome) -> None:
        mail, before = attempt.task.mail, attempt.task.before
        self._watch(outcome)
        match next_step(outcome, attempt.number, self._settings.mail_attempts):
            case Final(state, reason):
                if reason:
                    log.info("%s: %s, %s", self._about(mail.client), state, reason)
                self._settle(LedgerEntry(mail.client, state, mail.message_id, reason), before)
            case Again(reason, is_attempt):
                self._put_back(attempt, reason)
                self._waiting.put_again(attempt, is_attempt=is_attempt)
            case LeaveOpen(reason):
                self._put_back(attempt, reason)
                self._left.append(f"{mail.client}: {reason}")

    def _watch(self, outcome: Outcome) -> None:
        """Count how often in a row the server fell silent, or closed the connection."""
        match outcome:
            case NoReply():
                self._silent += 1
            case NotSent():
                self._lost += not outcome.unreachable
            case _:
                self._answered, self._silent, self._lost = True, 0, 0

    def _settle(self, entry: LedgerEntry, before: DeliveryState | None) -> None:
        assert entry.state is not None  # noqa: S101 - only _put_back opens
        self._tally.settle(entry.client, before, entry.state)
        self.write(entry)

    def _put_back(self, attempt: Attempt, reason: str) -> None:
        """Let the ledger say of a client what it said before: it was not mailed for certain."""
        mail, before = attempt.task.mail, attempt.task.before
        log.info("%s: attempt %d: %s", self._about(mail.client), attempt.number, reason)
        self.write(LedgerEntry(mail.client, before, mail.message_id, f"put back: {reason}"))

    def _about(self, client: str | None = None) -> str:
        where = f"{self._tally.week} shard {self._tally.shard}"
        return where if client is None else f"{where} {neutral(client, NAME)}"
