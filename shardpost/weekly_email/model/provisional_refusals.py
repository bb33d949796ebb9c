"""Which refused mails become `failed`: only those of a server that has shown that it works.

A server that refuses everything, or half of a load balancer that does, looks at each single mail
like a bad address. So a refusal is provisional at first: the client stays as it was, until enough
other mails were accepted.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from shardpost.errors import shown
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.server_health import ShareAlarm
from shardpost.wording import counted

# Refusals that are taken for bad addresses although the server accepted nothing in this run: so few
# clients were left. A week in which nobody was mailed needs a person anyway (limits.py).
MOST_UNPROVEN = 2
# Refusals in a row that are the server's fault.
MOST_REFUSED_IN_ROW = 10


@dataclass(frozen=True)
class RefusalLimits:
    """More refusals than these are the server's fault: in a row, and as a share of all mails."""

    most_in_row: int
    share: float

    def alarm(self) -> ShareAlarm:
        """Return an alarm at these limits."""
        return ShareAlarm(self.most_in_row, self.share)

    def is_small(self, refused: int, accepted: int) -> bool:
        """Tell whether so many refusals are no more than the share."""
        return refused <= self.share * (refused + accepted)

    def proves_server(self, refused: int, accepted: int) -> bool:
        """Tell whether the answers of a whole run, which nothing stopped, show a working server."""
        is_few = refused < self.most_in_row and (accepted > 0 or refused <= MOST_UNPROVEN)
        return is_few or self.is_small(refused, accepted)


@dataclass(frozen=True)
class Refusal:
    """A refused mail: what the ledger will say when it is final, and the client's state before."""

    entry: LedgerEntry
    before: DeliveryState | None

    def to_json(self) -> str:
        """Return it as text, for the report of its shard."""
        entry = self.entry
        parts = (entry.client, entry.message_id, entry.reason, entry.resends, self.before)
        return json.dumps(parts)

    @classmethod
    def from_json(cls, text: str) -> "Refusal":
        """Return the refusal that `to_json` wrote."""
        client, message_id, reason, resends, before = json.loads(text)
        entry = LedgerEntry(client, DeliveryState.FAILED, message_id, reason, resends)
        return cls(entry, DeliveryState(before) if before else None)


@dataclass
class Refusals:
    """The refusals of one shard in one run, and which of them are final.

    A series of answers begins with a refusal. When no more than the share of it are refusals, all
    in it are final; when it rings first, none of it is. So of all mails that were answered, at most
    that share fails before the end.
    """

    limits: RefusalLimits
    accepted: int = field(default=0, init=False)
    refused: int = field(default=0, init=False)
    provisional: list[Refusal] = field(default_factory=list, init=False)
    _alarm: ShareAlarm = field(init=False)
    _deferrals: ShareAlarm = field(init=False)
    _last_reason: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._alarm, self._deferrals = self.limits.alarm(), self.limits.alarm()

    def count_first_answer(self, *, is_deferred: bool) -> None:
        """Count the answer to the first attempt at a mail: 4xx, or another."""
        self._deferrals.record(is_bad=is_deferred)

    @property
    def is_deferring(self) -> bool:
        """Whether the server answers 4xx to so many that it is no single client's failure."""
        return self._deferrals.is_ringing

    def accept(self) -> list[Refusal]:
        """Count an accepted mail; return the refusals that are final by now."""
        self.accepted += 1
        self._alarm.record(is_bad=False)
        return self._final()

    def refuse(self, reason: str, refusal: Refusal | None) -> list[Refusal]:
        """Count a refused mail; return the refusals that are final by now.

        `refusal` is None if this one cannot become final in this run.
        """
        self.refused += 1
        self._last_reason = reason
        self._alarm.record(is_bad=True)
        if refusal is not None:
            self.provisional.append(refusal)
        return self._final()

    def finish(self) -> list[Refusal]:
        """Return the refusals that are final by the answers of the whole shard.

        The others stay provisional: the answers of the other shards decide.
        """
        is_final = not self._alarm.is_ringing and self.limits.is_small(self.refused, self.accepted)
        return self._taken() if is_final else []

    @property
    def stop_reason(self) -> str | None:
        """Why the shard has to stop, or None."""
        if not self._alarm.is_ringing:
            return None
        bad, answers = self._alarm.bad, self._alarm.bad + self._alarm.good
        return (
            f"the mail server refused {bad} of {answers} mails"
            f" (SHARDPOST_MAIL_REFUSAL_SHARE), the last one with: {self._last_reason}; none of"
            " these clients was marked failed; the remaining clients are not mailed yet"
        )

    def _final(self) -> list[Refusal]:
        return self._taken() if self._alarm.is_clear else []

    def _taken(self) -> list[Refusal]:
        taken, self.provisional = self.provisional, []
        return taken


def open_clients_error(refusals: Iterable[Refusal], refused: int, accepted: int) -> str:
    """Return why refused clients of a shard are not mailed yet at the end of a run."""
    entries = [refusal.entry for refusal in refusals]
    first = "; ".join(f"{shown(entry.client)}: {entry.reason}" for entry in entries[:3])
    which = counted(len(entries), "refused client is", "refused clients are")
    return (
        f"{which} not mailed yet: the mail server refused {counted(refused, 'mail')} of this run"
        f" and accepted {accepted} (SHARDPOST_MAIL_REFUSAL_SHARE): {first}"
    )
