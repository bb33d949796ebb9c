"""What a mail server made of one e-mail, and what follows from it for the client."""

from dataclasses import dataclass

from shardpost.weekly_email.model.ledger import DeliveryState


@dataclass(frozen=True)
class Accepted:
    """The server has taken the mail: 2xx after the final dot."""


@dataclass(frozen=True)
class PermanentFailure:
    """The server will never take this mail: 5xx."""

    reason: str


@dataclass(frozen=True)
class TemporaryFailure:
    """The server does not take this mail now: 4xx."""

    reason: str


@dataclass(frozen=True)
class NoReply:
    """The final dot was sent and no answer came: sent or not, nobody can say."""

    reason: str


@dataclass(frozen=True)
class NotSent:
    """The final dot was not sent, on a fresh connection either, or there was no connection."""

    reason: str
    unreachable: bool = False


Outcome = Accepted | PermanentFailure | TemporaryFailure | NoReply | NotSent


@dataclass(frozen=True)
class Final:
    """The client is done with for this week, or in doubt."""

    state: DeliveryState
    reason: str | None = None


@dataclass(frozen=True)
class Again:
    """The mail leaves its group and comes back.

    After the backoff, or at once if this was no attempt.
    """

    reason: str
    is_attempt: bool = True


@dataclass(frozen=True)
class LeaveOpen:
    """The mail is not tried any more in this run; the client stays open."""

    reason: str


def next_step(outcome: Outcome, attempt: int, attempts: int) -> Final | Again | LeaveOpen:
    """Decide what follows from the outcome of attempt number `attempt` of at most `attempts`.

    A connection that is lost is nobody's failure, so the client stays open then.
    """
    match outcome:
        case Accepted():
            return Final(DeliveryState.SENT)
        case PermanentFailure(reason):
            return Final(DeliveryState.FAILED, reason)
        case NoReply(reason):
            return Final(DeliveryState.UNKNOWN, reason)
        case TemporaryFailure(reason) if attempt >= attempts:
            return Final(DeliveryState.FAILED, f"{reason} (at attempt {attempt} of {attempts})")
        case NotSent(reason, unreachable) if unreachable or attempt < attempts:
            return Again(reason, is_attempt=not unreachable)
        case NotSent(reason):
            return LeaveOpen(reason)
        case TemporaryFailure(reason):
            return Again(reason)
