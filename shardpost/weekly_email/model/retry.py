"""Outcomes of attempts to send an e-mail, the backoff, and the rate limit.

One backoff serves both failed SMTP connections and 4xx replies: attempt n + 1 follows a failed
attempt n after 1, 4, 16, … seconds.
"""

import math
from dataclasses import dataclass

from shardpost.weekly_email.model.ledger import DeliveryState


@dataclass(frozen=True)
class Accepted:
    """The server accepted the mail: 2xx after the final dot."""


@dataclass(frozen=True)
class PermanentFailure:
    """The server rejected the mail for good: 5xx."""

    reason: str


@dataclass(frozen=True)
class TemporaryFailure:
    """The server rejected the mail for now: 4xx."""

    reason: str


@dataclass(frozen=True)
class NoReply:
    """The final dot was sent and no reply came: delivery unknown."""

    reason: str


@dataclass(frozen=True)
class NotSent:
    """The final dot was not sent, even on a new connection; `unreachable`: none was opened."""

    reason: str
    unreachable: bool = False


SmtpOutcome = Accepted | PermanentFailure | TemporaryFailure | NoReply | NotSent


FIRST_DELAY = 1.0  # seconds before the second attempt
DELAY_FACTOR = 4.0  # for each further attempt


def delay_after(attempt: int) -> float:
    """Return the delay in seconds after the failure of attempt number `attempt`, from 1 on."""
    return FIRST_DELAY * DELAY_FACTOR ** (attempt - 1)


@dataclass(frozen=True)
class Final:
    """The client's final state for this week; `unknown` is left to a person."""

    state: DeliveryState
    reason: str | None = None


@dataclass(frozen=True)
class Retry:
    """Send the mail again after `delay` seconds as number `attempt`; `lost` connections so far."""

    reason: str
    attempt: int
    delay: float
    lost: int = 0


@dataclass(frozen=True)
class LeaveOpen:
    """The mail is not retried in this run; the client is not mailed yet."""

    reason: str


NextStep = Final | Retry | LeaveOpen


def next_step(outcome: SmtpOutcome, attempt: int, attempts: int, lost: int = 0) -> NextStep:
    """Decide what follows the outcome of attempt number `attempt` of at most `attempts`.

    A lost connection is never the client's failure and does not count as an attempt: after as many
    lost connections as attempts (`lost` before this one) the client is left for the next run. If no
    connection could be opened, the mail was not attempted and is retried without delay.
    """
    match outcome:
        case Accepted():
            return Final(DeliveryState.SENT)
        case PermanentFailure(reason):
            return Final(DeliveryState.FAILED, reason)
        case NoReply(reason):
            return Final(DeliveryState.UNKNOWN, reason)
        case NotSent(reason, unreachable=True):
            return Retry(reason, attempt, 0.0, lost)
        case TemporaryFailure(reason) if attempt >= attempts:
            last = f"{reason} (at attempt {attempt} of {attempts})"
            return Final(DeliveryState.FAILED, last)
        case TemporaryFailure(reason):
            return Retry(reason, attempt + 1, delay_after(attempt), lost)
        case NotSent(reason):
            again = Retry(reason, attempt, delay_after(lost + 1), lost + 1)
            return LeaveOpen(reason) if lost + 1 >= attempts else again


BURST_SECONDS = 0.25  # of the rate, after a pause


class RateLimit:
    """A token bucket; times are seconds of a monotonic clock."""

    def __init__(self, rate: float | None, now: float) -> None:
        self._rate = rate
        self._most = max(1.0, (rate or 0) * BURST_SECONDS)
        self._tokens, self._at = 1.0, now

    def allowed(self, now: float) -> float:
        """Return the number of mails that may be sent now, possibly infinity."""
        if self._rate is None:
            return math.inf
        self._tokens = min(self._most, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return math.floor(self._tokens + 1e-9)

    def delay(self, now: float) -> float:
        """Return the seconds until one mail may be sent."""
        if self._rate is None or self.allowed(now):
            return 0.0
        return (1 - self._tokens) / self._rate

    def spend(self, mails: int) -> None:
        """Count mails as sent."""
        if self._rate is not None:
            self._tokens -= mails
