"""What the ledger says of every client of a shard in one week, in a few bytes per client.

Only who sends, or reads much of it, imports numpy for it: DAGs import ledger.py.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from shardpost.weekly_email.model.ledger import (
    OF_ERASED,
    DeliveryState,
    LedgerEntry,
    LedgerId,
    ledger_id,
)

DIGEST = 16
STATES: tuple[DeliveryState | None, ...] = (None, *DeliveryState)
_CODES = {state: code for code, state in enumerate(STATES)}


@dataclass
class LedgerIndex:
    """Sorted digests of the client ids, and their states.

    `delivery_unknown`: the last entry of each client in the state `sending` or `unknown`;
    `resends`: how often each client's mail was sent again. With `has_erased`, it has some clients
    by their hash.
    """

    digests: NDArray[np.bytes_]
    codes: NDArray[np.uint8]
    delivery_unknown: dict[LedgerId, LedgerEntry]
    resends: dict[LedgerId, int]
    has_erased: bool = False

    @classmethod
    def fold(cls, entries: Iterable[LedgerEntry]) -> "LedgerIndex":
        """Fold the ledger's entries, oldest first: the last of each client counts."""
        digests, codes = bytearray(), bytearray()
        delivery_unknown: dict[LedgerId, LedgerEntry] = {}
        resends: dict[LedgerId, int] = {}
        has_erased = False
        for entry in entries:
            has_erased = has_erased or entry.is_erased
            digests += _digest(entry.id)
            codes.append(_CODES[entry.state])
            delivery_unknown.pop(entry.id, None)
            resends.pop(entry.id, None)
            if entry.resends:
                resends[entry.id] = entry.resends
            if entry.state in (DeliveryState.SENDING, DeliveryState.UNKNOWN):
                delivery_unknown[entry.id] = entry
        every = _array(bytes(digests))
        order = np.argsort(every, kind="stable")
        every, states = every[order], np.frombuffer(bytes(codes), np.uint8)[order]
        last = np.ones(len(every), dtype=bool)
        last[:-1] = every[1:] != every[:-1]
        return cls(every[last], states[last], delivery_unknown, resends, has_erased)

    def states(self, clients: Sequence[str]) -> list[DeliveryState | None]:
        """Return the state of each client, erased ones included; None is open."""
        states = self._states(clients)
        if not self.has_erased:
            return states
        erased = self._states(clients, of=LedgerId.erased)
        pairs = zip(states, erased, strict=True)
        return [other if own is None else own for own, other in pairs]

    def resent(self, client: str) -> int:
        """Return how often a client's mail was sent again."""
        if not self.resends:  # as nearly always: no hash is needed
            return 0
        return self.resends.get(LedgerId(client)) or self.resends.get(LedgerId.erased(client), 0)

    def unknown(self, client: str) -> LedgerEntry:
        """Return the last entry of a client whose delivery is unknown; KeyError for others."""
        own = self.delivery_unknown.get(LedgerId(client))
        return own or self.delivery_unknown[LedgerId.erased(client)]

    def _states(
        self, clients: Sequence[str], of: Callable[[str], LedgerId] = LedgerId
    ) -> list[DeliveryState | None]:
        if not len(self.digests):
            return [None] * len(clients)
        wanted = _array(b"".join(_digest(of(client)) for client in clients))
        at = np.searchsorted(self.digests, wanted).clip(max=len(self.digests) - 1)
        codes = np.where(self.digests[at] == wanted, self.codes[at], np.uint8(0))
        return [STATES[code] for code in codes.tolist()]

    def counts(self) -> Counter[DeliveryState]:
        """Return how many clients are in each state; the open ones are not counted."""
        counts = np.bincount(self.codes, minlength=len(STATES)).tolist()
        return Counter({state: counts[code] for state, code in _CODES.items() if state is not None})


def _digest(about: LedgerId) -> bytes:
    person = OF_ERASED.encode() if about.is_erased else b""
    encoded = ledger_id(about.client).encode()
    return blake2b(encoded, digest_size=DIGEST, person=person).digest()


def _array(digests: bytes) -> NDArray[np.bytes_]:
    # numpy ignores trailing zeros in comparisons; with one fixed length that is equality.
    return np.frombuffer(digests, dtype=f"S{DIGEST}")


WHY_UNKNOWN = "the run that was sending it ended before it wrote the outcome"


def sending_to_unknown(ledger_index: LedgerIndex) -> list[LedgerEntry]:
    """Turn every `sending` of an index into `unknown`; return the entries that say so.

    Call it only while no run can be sending, or for reading.
    """
    codes = ledger_index.codes
    codes[codes == _CODES[DeliveryState.SENDING]] = _CODES[DeliveryState.UNKNOWN]
    return [
        replace(entry, state=DeliveryState.UNKNOWN, reason=WHY_UNKNOWN)
        for entry in ledger_index.delivery_unknown.values()
        if entry.state is DeliveryState.SENDING
    ]
