"""A person's decision about deliveries that are unknown.

The command makes one of its options, so this file needs neither Kafka nor tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from shardpost.decisions import Decision, Kind
from shardpost.errors import ShardpostError, shown
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry, LedgerId
from shardpost.weekly_email.model.week import IsoWeek

# Clients that an error names.
MOST_NAMED = 20


class Outcome(StrEnum):
    """What a person found out about a delivery."""

    SENT = "sent"  # the client got it
    OPEN = "open"  # it did not: the next run mails it


@dataclass(frozen=True)
class Resolution:
    """The decision: of which week and clients, what, by whom, why and when."""

    week: IsoWeek
    clients: tuple[str, ...]
    outcome: Outcome
    who: str
    why: str
    when: datetime

    def entry(self, unknown: LedgerEntry) -> LedgerEntry:
        """Return the ledger's next entry of a client, after the one that left it unknown."""
        state = DeliveryState.SENT if self.outcome is Outcome.SENT else None
        reason = f"resolved as {self.outcome} by {self.who}: {self.why}"
        return replace(unknown, state=state, reason=reason, resends=0)

    def decision(self, client: str) -> Decision:
        """Return the record of the decision about one client."""
        about = LedgerId(client).key(self.week)
        return Decision(about, Kind.RESOLVED, self.who, self.when, self.why)

    def require_unknown(self, states: Mapping[str, DeliveryState | None]) -> None:
        """Refuse the whole decision if a client is in another state; None is open."""
        others = [
            f"{shown(client)} is {state or 'open'}"
            for client, state in states.items()
            if state not in (DeliveryState.UNKNOWN, DeliveryState.SENDING)
        ]
        if others:
            more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
            raise ShardpostError(
                f"{self.week}: expected clients whose delivery is unknown, found"
                f" {', '.join(others[:MOST_NAMED])}{more}; nothing was changed:"
                f" `shardpost emails --week {self.week}` lists those that are"
            )
