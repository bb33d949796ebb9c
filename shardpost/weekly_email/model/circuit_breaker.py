"""When the mail server itself fails, and not single mails, so that the shard has to stop.

Missing replies and lost connections are counted here, refusals in refusals.py.
"""

import math
from dataclasses import dataclass, field

from shardpost.weekly_email.model.share_alarm import ShareAlarm
from shardpost.weekly_email.model.smtp_outcome import NoReply, NotSent, SmtpOutcome


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
                else f"{self._silent} mails in a row"
            )
            return (
                f"the mail server sent no reply after the end of {some}"
                " (SHARDPOST_MAIL_BREAKER): these are unknown; all other clients stay open"
            )
        if self._lost >= self.most_lost:
            return (
                f"the mail server closed {self._lost} connections in a row without accepting a"
                " mail: clients that were not mailed stay open"
            )
        return None
