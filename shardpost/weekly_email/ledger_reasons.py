"""The reasons of the clients that are in some states, gathered while a shard's ledger is read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry

State = DeliveryState | None


@dataclass
class LedgerReasons:
    """For each client whose last entry is in one of the states: that state, and its reason.

    None is open, said by a tombstone. Others take no memory.
    """

    states: frozenset[State]
    found: dict[str, tuple[State, str | None]] = field(default_factory=dict, init=False)

    def watch(self, entries: Iterable[LedgerEntry]) -> Iterator[LedgerEntry]:
        """Pass entries on, oldest first."""
        for entry in entries:
            if entry.state in self.states:
                self.found[entry.client] = entry.state, entry.reason
            else:
                self.found.pop(entry.client, None)
            yield entry
