"""What became of one e-mail that was handed to the mail server."""

from dataclasses import dataclass


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
    """The final dot was not sent, on a new connection either.

    `unreachable`: no connection could be opened.
    """

    reason: str
    unreachable: bool = False


SmtpOutcome = Accepted | PermanentFailure | TemporaryFailure | NoReply | NotSent
