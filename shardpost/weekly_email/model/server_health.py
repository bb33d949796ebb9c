"""Whether the mail server works: what a shard does where it fails, and not single mails.

The alarm is a one-sided CUSUM (E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954):
no window of the last so many answers, so that it works for three mails as for three million.

Missing replies and lost connections stop a shard by `CircuitBreaker`, refusals by
`provisional_refusals.Refusals`.
"""

import math
from dataclasses import dataclass, field

from shardpost.weekly_email.model.retry import NoReply, NotSent, SmtpOutcome
from shardpost.wording import counted

# Mails in a row without a final reply that stop a shard.
MOST_SILENT = 3


@dataclass
class ShareAlarm:
    """Rings after `most_in_row` bad answers in a row, or more than `share` of a longer series.

    A series begins with a bad answer. Its score is how many more are bad than `share` of it. It
    rings as soon as the score is that of `most_in_row` bad ones in a row; a series whose score is
    back at zero is over, and no more than `share` of it were bad. A share of 1 never rings.
    """

    most_in_row: int
    share: float
    bad: int = field(default=0, init=False)
    good: int = field(default=0, init=False)
    is_ringing: bool = field(default=False, init=False)

    def record(self, *, is_bad: bool) -> None:
        """Count one answer."""
        if is_bad:
            self.bad += 1
        elif self.bad:
            self.good += 1
        score = self._excess(self.bad, self.bad + self.good)
        if score <= 0:
            self.bad, self.good, self.is_ringing = 0, 0, False
        elif score >= self._excess(self.most_in_row, self.most_in_row):
            self.is_ringing = True

    @property
    def is_clear(self) -> bool:
        """Whether no series is open."""
        return not self.bad

    def _excess(self, bad: int, answers: int) -> float:
        return bad - self.share * answers


@dataclass
class CircuitBreaker:
    """Counts missing replies and lost connections.

    `most_silent` mails in a row without a final reply, or more than `share` of a longer series, or
    `most_lost` lost connections in a row without a mail accepted or rejected, stop the shard.
    """

    most_silent: int
    most_lost: int
    share: float
    _silence: ShareAlarm = field(init=False)
    _silent: int = field(default=0, init=False)  # in a row
    _lost: int = field(default=0, init=False)
    _has_replied: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._silence = ShareAlarm(self.most_silent, self.share)

    def record(self, outcome: SmtpOutcome) -> None:
        """Count the outcome of one mail."""
        match outcome:
            case NoReply():
                self._silent += 1
                self._silence.record(is_bad=True)
            case NotSent():
                self._lost += not outcome.unreachable
            case _:
                self._has_replied, self._silent, self._lost = True, 0, 0
                self._silence.record(is_bad=False)

    @property
    def allowed(self) -> float:
        """How many mails may be sent at once.

        A server that has not replied yet, or has just gone silent, gets no more mails than would
        stop the shard.
        """
        is_proven = self._has_replied and not self._silent
        return math.inf if is_proven else self.most_silent - self._silent

    @property
    def stop_reason(self) -> str | None:
        """Why the shard has to stop, or None."""
        if self._silent >= self.most_silent or self._silence.is_ringing:
            bad, mails = self._silence.bad, self._silence.bad + self._silence.good
            some = (
                f"{bad} of {mails} mails"
                if bad > self._silent
                else f"{counted(self._silent, 'mail')} in a row"
            )
            return (
                f"the mail server sent no reply after the end of {some}: their delivery is"
                " unknown; the remaining clients are not mailed yet"
            )
        if self._lost >= self.most_lost:
            return (
                f"the mail server closed {counted(self._lost, 'connection')} in a row without"
                " accepting a mail: the remaining clients are not mailed yet"
            )
        return None
