"""The sender of one shard: ledger, then mail, then ledger, each client exactly once.

One transaction holds the outcomes of the last group of mails and `sending` of the next; the mail
server is contacted only after that commit returned. So a run that dies leaves at most one client
per open connection unknown, and the next run knows which. Each connection to the mail server sends
one mail at a time.
"""

import logging
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from types import FrameType

from shardpost.errors import ShardpostError, said
from shardpost.installation import Installation
from shardpost.locks.claims import boot_clock
from shardpost.weekly_email import ledger_topic
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.message import Mail
from shardpost.weekly_email.model.retry import NoReply, NotSent, RateLimit, SmtpOutcome
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.outcomes import (
    MAX_QUEUED,
    Attempt,
    DeliveryRecords,
    Outcomes,
    Progress,
    RetryQueue,
)
from shardpost.weekly_email.send_plan import UNREADABLE, MailToSend, NoMail, Step
from shardpost.weekly_email.smtp import MailServerError, SmtpSession
from shardpost.weekly_email.smtp_server import SmtpServer
from shardpost.weekly_email.week_state import WeekState
from shardpost.wording import counted

log = logging.getLogger(__name__)

# Before a wait longer than this, in seconds, the outcomes so far are committed.
LONGEST_HELD = 0.2
# A wait is cut into pieces of this many seconds, so that a signal to stop is noticed.
WAIT_SECONDS = 0.5
SIGNALS = (signal.SIGTERM, signal.SIGHUP)
WATCH_SECONDS = 2.0  # between checks whether the week was paused


class StoppedError(ShardpostError):
    """The shard stopped before its end; the remaining clients are not mailed yet."""


class ShardSender:
    """Carries out the steps of a plan until it is finished or stopped."""

    def __init__(
        self,
        server: SmtpServer,
        ledger: ledger_topic.Ledger,
        progress: Progress,
        rate_limit: RateLimit,
        stop_reason: Callable[[], str | None],
    ) -> None:
        self._ledger, self._progress, self._rate_limit = ledger, progress, rate_limit
        self._stop_reason = stop_reason
        self._connections, self._retry_queue = SmtpConnections(server), RetryQueue()
        self.records = DeliveryRecords(ledger, progress)
        self.outcomes = Outcomes(server, self.records, self._retry_queue)
        self._started = 0

    def run(self, steps: Iterator[Step]) -> None:
        """Carry out all steps; commit the outcomes so far before raising what stopped the shard."""
        try:
            while group := self._next_group(steps):
                self._send(group)
        except (StoppedError, MailServerError):
            self.records.flush()
            raise
        self.outcomes.finish()
        self.records.flush()
        if left_open := self.outcomes.left_open:
            which = counted(len(left_open), "client remains", "clients remain")
            raise StoppedError(f"{which} open: {'; '.join(left_open[:3])}")

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _next_group(self, steps: Iterator[Step]) -> list[Attempt]:
        """Return the next mails to send together, at most one per connection; empty at the end."""
        while True:
            # Until at least one mail may be sent.
            while (delay := self._rate_limit.delay(time.monotonic())) > 0:
                self._wait(delay)
            self._raise_if_stopped()
            by_rate = self._rate_limit.allowed(time.monotonic())
            most = int(min(len(self._connections), self.outcomes.health.allowed, by_rate))
            group = self._retry_queue.take_due(most)
            while len(group) < most and len(self._retry_queue) < MAX_QUEUED:
                match next(steps, None):
                    case MailToSend() as task:
                        self._started += 1
                        group.append(Attempt(0, self._started, task))
                    case NoMail(entry, before):
                        self.records.finish(entry, before)
                    case None:
                        break
            if group or not self._retry_queue:
                return group
            self._wait(self._retry_queue.delay)

    def _wait(self, seconds: float) -> None:
        if seconds > LONGEST_HELD:
            self.records.flush()
        self._raise_if_stopped()
        self._progress.log_every_few_seconds(len(self._retry_queue), time.monotonic())
        time.sleep(max(0.0, min(seconds, WAIT_SECONDS)))

    def _raise_if_stopped(self) -> None:
        if reason := self._stop_reason():
            raise StoppedError(reason)

    def _send(self, group: list[Attempt]) -> None:
        self._connections.open(len(group))
        for attempt in group[len(self._connections) :]:
            self._retry_queue.restore(attempt)
        group = group[: len(self._connections)]
        self._rate_limit.spend(len(group))
        entries = [attempt.task.entry(DeliveryState.SENDING) for attempt in group]
        commit = ledger_topic.FreshCommit(self._ledger, entries, boot_clock)
        for entry in entries:
            self.records.write(entry)
        self.records.flush()
        mails = [attempt.task.mail for attempt in group]
        outcomes = self._connections.send(mails, commit.require)
        for attempt, outcome in zip(group, outcomes, strict=True):
            self.outcomes.apply(attempt, outcome)
        self._progress.log_every_few_seconds(len(self._retry_queue), time.monotonic())
        if not self._connections:
            last = next(outcome for outcome in outcomes if isinstance(outcome, NotSent))
            raise StoppedError(last.reason)
        if reason := self.outcomes.health.stop_reason:
            raise StoppedError(reason)


class SmtpConnections:
    """Up to `mail_connections` sessions; a session that cannot be opened is dropped."""

    def __init__(self, server: SmtpServer) -> None:
        # The other connections fail the same way: logging it once is enough.
        self._sessions = [
            SmtpSession(server, logs_attempts=number == 0)
            for number in range(server.mail_connections)
        ]
        self._pool = ThreadPoolExecutor(server.mail_connections, "smtp")

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, wanted: int) -> None:
        """Open that many, or continue with fewer; MailServerError if none can be opened."""
        sessions = self._sessions[:wanted]
        errors = list(self._pool.map(_open, sessions))
        failed = [error for error in errors if error is not None]
        if failed and len(failed) == len(errors):
            raise failed[0]
        self._remove([session for session, error in zip(sessions, errors, strict=True) if error])

    def send(self, mails: Sequence[Mail], require: Callable[[], None]) -> list[SmtpOutcome]:
        """Send at most `len` mails in parallel; return the outcome of each.

        `require` is called from several threads before the content of each mail; if it raises
        ShardpostError, the mail is not sent.
        """
        sessions = self._sessions[: len(mails)]
        others = self._pool.map(_send, sessions[1:], mails[1:], repeat(require))
        outcomes = [_send(sessions[0], mails[0], require), *others]
        pairs = zip(sessions, outcomes, strict=True)
        self._remove([one for one, end in pairs if isinstance(end, NotSent) and end.unreachable])
        return outcomes

    def close(self) -> None:
        """Close all."""
        self._pool.shutdown()
        for session in self._sessions:
            session.close()

    def _remove(self, failed: list[SmtpSession]) -> None:
        if failed:
            self._sessions = [session for session in self._sessions if session not in failed]
            log.warning("continuing with %d connections to the mail server", len(self))


def _open(session: SmtpSession) -> MailServerError | None:
    try:
        session.open()
    except MailServerError as error:
        return error
    return None


def _send(session: SmtpSession, mail: Mail, require: Callable[[], None]) -> SmtpOutcome:
    try:
        return session.send(mail, require)
    except Exception as error:
        log.exception("internal error while a mail was sent")
        return NoReply(said(error))


@contextmanager
def stop_reason_by_signal() -> Iterator[Callable[[], str | None]]:
    """Provide a function that returns why to stop, or None, so that mails in flight can finish.

    The signals are those with which Spark ends its Python workers.
    """
    reasons: list[str] = []

    def handle(number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        reasons.append(f"stopped by {name}: the remaining clients are not mailed yet")

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield lambda: reasons[0] if reasons else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class PauseWatch:
    """Checks every few seconds whether the week of a shard being mailed was paused.

    `clock` returns monotonic seconds. If the tables cannot be read, mailing continues: nobody can
    have written there either, and the check of subscriptions reports the error.
    """

    installation: Installation
    week: IsoWeek
    clock: Callable[[], float]
    _looked_at: float | None = field(default=None, init=False)
    _found: str | None = field(default=None, init=False)

    def __call__(self) -> str | None:
        """Return why to stop, or None."""
        now = self.clock()
        is_due = self._looked_at is None or now - self._looked_at >= WATCH_SECONDS
        if self._found is None and is_due:
            self._looked_at = now
            try:
                paused = WeekState(self.installation, self.week).paused
                self._found = paused.explanation if paused else None
            except UNREADABLE as error:
                log.warning("%s: cannot check whether it was paused: %s", self.week, error)
        return self._found
