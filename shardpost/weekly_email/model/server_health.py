"""The health of the mail server from its answers to a shard, and which refusals are final.

The alarm is a one-sided CUSUM (E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954).
It has no window of recent answers, so it works for three mails and for three million.

A server that refuses everything, or one broken half of a load balancer, looks like a bad address
for each single mail. So a refusal is provisional until enough other mails were accepted.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from shardpost.errors import shown
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.retry import NoReply, NotSent, SmtpOutcome, TemporaryFailure
from shardpost.wording import counted

# Refusals that count as bad addresses although the server accepted nothing in this run, since so
# few clients were left. A week in which nobody was mailed needs a person anyway (limits.py).
MOST_UNPROVEN = 2


@dataclass(frozen=True)
class HealthLimits:
    """Limits beyond which the server is at fault: bad answers in a row, or as a share of many.

    Bad answers are lost connections, refused mails and mails without a final reply. A share of 1 is
    never exceeded.
    """

    share: float
    most_lost: int
    most_refused: int = 10
    most_silent: int = 3

    def is_small(self, refused: int, accepted: int) -> bool:
        """Return whether that many refusals are within the share."""
        return refused <= self.share * (refused + accepted)

    def proves_server(self, refused: int, accepted: int) -> bool:
        """Return whether the answers of a whole, unstopped run show a working server."""
        is_few = refused < self.most_refused and (accepted > 0 or refused <= MOST_UNPROVEN)
        return is_few or self.is_small(refused, accepted)


@dataclass
class ShareAlarm:
    """Rings after `most_in_row` bad answers in a row, or more than `share` of a longer series.

    A series begins with a bad answer. Its score is the number of bad answers above `share` of it.
    It rings when the score reaches that of `most_in_row` bad answers in a row; a series ends when
    its score is back at zero, so at most `share` of it was bad. A share of 1 never rings.
    """

    most_in_row: int
    share: float
    bad: int = field(default=0, init=False)
    answers: int = field(default=0, init=False)
    is_ringing: bool = field(default=False, init=False)

    def record(self, *, is_bad: bool) -> None:
        """Count one answer."""
        if is_bad or self.bad:
            self.bad += is_bad
            self.answers += 1
        score = self.bad - self.share * self.answers
        if score <= 0:
            self.bad, self.answers, self.is_ringing = 0, 0, False
        elif score >= self.most_in_row - self.share * self.most_in_row:
            self.is_ringing = True

    @property
    def is_clear(self) -> bool:
        """Whether no series is open."""
        return not self.bad


@dataclass(frozen=True)
class Refusal:
    """A refused mail: its ledger entry once final, and the client's state before."""

    entry: LedgerEntry
    before: DeliveryState | None

    def to_json(self) -> str:
        """Return it as text for its shard's report."""
        entry = self.entry
        parts = (entry.client, entry.message_id, entry.reason, entry.resends, self.before)
        return json.dumps(parts)

    @classmethod
    def from_json(cls, text: str) -> "Refusal":
        """Return the refusal that `to_json` wrote."""
        client, message_id, reason, resends, before = json.loads(text)
        entry = LedgerEntry(client, DeliveryState.FAILED, message_id, reason, resends)
        return cls(entry, DeliveryState(before) if before else None)


class ServerHealth:
    """Decides from the answers of one shard in one run whether to stop, and what is final.

    A series of answers begins with a refusal. If the share of refusals in it falls to the limit,
    they are final; if it rings first, none is. So at most that share of all answered mails fails
    before the end.
    """

    def __init__(self, limits: HealthLimits) -> None:
        self._limits = limits
        self._refusals = ShareAlarm(limits.most_refused, limits.share)
        self._deferrals = ShareAlarm(limits.most_refused, limits.share)
        self._silence = ShareAlarm(limits.most_silent, limits.share)
        self._silent = self._lost = 0  # in a row
        self._has_replied, self._last_reason = False, ""
        self.accepted = self.refused = 0
        self.provisional: list[Refusal] = []

    def record(self, outcome: SmtpOutcome, *, is_first: bool) -> None:
        """Count the outcome of any attempt at a mail."""
        match outcome:
            case NoReply():
                self._silent += 1
                self._silence.record(is_bad=True)
            case NotSent():
                self._lost += not outcome.unreachable
            case _:
                self._has_replied, self._silent, self._lost = True, 0, 0
                self._silence.record(is_bad=False)
                if is_first:
                    self._deferrals.record(is_bad=isinstance(outcome, TemporaryFailure))

    @property
    def allowed(self) -> float:
        """The number of mails that may be sent at once.

        A server that has not replied yet, or has just gone silent, gets only as many mails as would
        stop the shard.
        """
        is_proven = self._has_replied and not self._silent
        return math.inf if is_proven else self._limits.most_silent - self._silent

    @property
    def is_deferring(self) -> bool:
        """Whether the server answers 4xx so often that no single client is at fault."""
        return self._deferrals.is_ringing

    def accept(self) -> list[Refusal]:
        """Count an accepted mail; return the refusals that are now final."""
        self.accepted += 1
        self._refusals.record(is_bad=False)
        return self._taken(is_final=self._refusals.is_clear)

    def refuse(self, reason: str, refusal: Refusal | None) -> list[Refusal]:
        """Count a refused mail; return the refusals that are now final.

        `refusal` is None if it cannot become final in this run.
        """
        self.refused += 1
        self._last_reason = reason
        self._refusals.record(is_bad=True)
        if refusal is not None:
            self.provisional.append(refusal)
        return self._taken(is_final=self._refusals.is_clear)

    def finish(self) -> list[Refusal]:
        """Return the refusals that are final given the answers of the whole shard.

        For the others, the answers of the other shards decide.
        """
        is_small = self._limits.is_small(self.refused, self.accepted)
        return self._taken(is_final=is_small and not self._refusals.is_ringing)

    def _taken(self, *, is_final: bool) -> list[Refusal]:
        if not is_final:
            return []
        taken, self.provisional = self.provisional, []
        return taken

    @property
    def stop_reason(self) -> str | None:
        """Why the shard has to stop, or None."""
        rest = "the remaining clients are not mailed yet"
        if self._silent >= self._limits.most_silent or self._silence.is_ringing:
            bad = self._silence.bad
            some = (
                f"{bad} of {self._silence.answers} mails"
                if bad > self._silent
                else f"{counted(self._silent, 'mail')} in a row"
            )
            return (
                f"the mail server sent no reply after the end of {some}: their delivery is"
                f" unknown; {rest}"
            )
        if self._lost >= self._limits.most_lost:
            return (
                f"the mail server closed {counted(self._lost, 'connection')} in a row without"
                f" accepting a mail: {rest}"
            )
        if self._refusals.is_ringing:
            return (
                f"the mail server refused {self._refusals.bad} of {self._refusals.answers} mails"
                f" (SHARDPOST_MAIL_REFUSAL_SHARE), the last one with: {self._last_reason}; none of"
                f" these clients was marked failed; {rest}"
            )
        return None


def open_clients_error(refusals: Iterable[Refusal], refused: int, accepted: int) -> str:
    """Return why refused clients of a shard are not mailed yet at the end of a run."""
    entries = [refusal.entry for refusal in refusals]
    first = "; ".join(f"{shown(entry.client)}: {entry.reason}" for entry in entries[:3])
    which = counted(len(entries), "refused client is", "refused clients are")
    return (
        f"{which} not mailed yet: the mail server refused {counted(refused, 'mail')} of this run"
        f" and accepted {accepted} (SHARDPOST_MAIL_REFUSAL_SHARE): {first}"
    )
