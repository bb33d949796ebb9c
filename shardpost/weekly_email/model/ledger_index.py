"""What the ledger says of every client of a shard in one week, in a few bytes per client."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from shardpost.weekly_email.model.ledger import (
    ERASED,
    DeliveryState,
    LedgerEntry,
    erased_id,
    ledger_id,
)

DIGEST = 16
STATES: tuple[DeliveryState | None, ...] = (None, *DeliveryState)
_CODES = {state: code for code, state in enumerate(STATES)}


@dataclass
class LedgerIndex:
    """Sorted digests of the client ids, and their states.

    `delivery_unknown`: the last entry of each client in the state `sending` or `unknown`, by name;
    `resends`: of the clients whose mail was sent again, by name, how often. With `has_erased`, some
    clients are in it by their `erased_id`.
    """

    digests: NDArray[np.bytes_]
    codes: NDArray[np.uint8]
    delivery_unknown: dict[str, LedgerEntry]
    resends: dict[str, int]
    has_erased: bool = False

    @classmethod
    def fold(
        cls, entries: Iterable[LedgerEntry], before: "LedgerIndex | None" = None
    ) -> "LedgerIndex":
        """Fold the ledger's entries, oldest first: the last of each client counts.

        With `before`, they come after those that it is of, which stays as it is.
        """
        digests, codes = bytearray(), bytearray()
        delivery_unknown: dict[str, LedgerEntry] = {}
        resends: dict[str, int] = {}
        has_erased = False
        if before is not None:
            digests, codes = bytearray(before.digests.tobytes()), bytearray(before.codes.tobytes())
            delivery_unknown, resends = {**before.delivery_unknown}, {**before.resends}
            has_erased = before.has_erased
        for entry in entries:
            has_erased = has_erased or entry.client.startswith(ERASED)
            digests += _digest(entry.client)
            codes.append(_CODES[entry.state])
            delivery_unknown.pop(entry.client, None)
            resends.pop(entry.client, None)
            if entry.resends:
                resends[entry.client] = entry.resends
            if entry.state in (DeliveryState.SENDING, DeliveryState.UNKNOWN):
                delivery_unknown[entry.client] = entry
        last = _last(_array(bytes(digests)), np.frombuffer(bytes(codes), np.uint8))
        return cls(*last, delivery_unknown, resends, has_erased)

    def states(self, clients: Sequence[str]) -> list[DeliveryState | None]:
        """Return the state of each client, also of one that was erased; None is open."""
        states = self._states(clients)
        if not self.has_erased:
            return states
        erased = self._states([erased_id(client) for client in clients])
        return [
            own if own is not None else other for own, other in zip(states, erased, strict=True)
        ]

    def resent(self, client: str) -> int:
        """Return how often a client's mail was sent again."""
        return self.resends.get(client) or self.resends.get(erased_id(client), 0)

    def unknown(self, client: str) -> LedgerEntry:
        """Return the last entry of a client whose delivery is unknown; KeyError of any other."""
        own = client if client in self.delivery_unknown else erased_id(client)
        return self.delivery_unknown[own]

    def count_open(self, members: "Members") -> int:
        """Return how many of them are open: as many as `states` would say None of."""
        codes = self._codes(members.digests)
        if self.has_erased:
            codes = np.maximum(codes, self._codes(members.erased))
        return int(np.count_nonzero(codes == 0))

    def _states(self, clients: Sequence[str]) -> list[DeliveryState | None]:
        codes = self._codes(_array(b"".join(map(_digest, clients))))
        return [STATES[code] for code in codes.tolist()]

    def _codes(self, wanted: NDArray[np.bytes_]) -> NDArray[np.uint8]:
        if not len(self.digests):
            return np.zeros(len(wanted), np.uint8)
        at = np.searchsorted(self.digests, wanted).clip(max=len(self.digests) - 1)
        return np.where(self.digests[at] == wanted, self.codes[at], np.uint8(0))

    def counts(self) -> Counter[DeliveryState]:
        """Return how many clients are in each state; the open ones are not counted."""
        counts = np.bincount(self.codes, minlength=len(STATES)).tolist()
        return Counter({state: counts[code] for state, code in _CODES.items() if state is not None})

    def change(self, before: DeliveryState, after: DeliveryState) -> None:
        """Put all clients that are in one state into another."""
        self.codes[self.codes == _CODES[before]] = _CODES[after]


@dataclass(frozen=True)
class Members:
    """Clients by the digests of their ids, and of those under which they are if erased."""

    digests: NDArray[np.bytes_]
    erased: NDArray[np.bytes_]

    @classmethod
    def of(cls, clients: Sequence[str], *, with_erased: bool) -> "Members":
        """Return those clients; the digests of erased ones only if they are asked for."""
        erased = map(erased_id, clients if with_erased else ())
        return cls(*(_array(b"".join(map(_digest, ids))) for ids in (clients, erased)))


def _digest(client: str) -> bytes:
    return blake2b(ledger_id(client).encode(), digest_size=DIGEST).digest()


def _array(digests: bytes) -> NDArray[np.bytes_]:
    # numpy ignores trailing zeros when it compares these; at one fixed length that is equality.
    return np.frombuffer(digests, dtype=f"S{DIGEST}")


def _last(
    digests: NDArray[np.bytes_], codes: NDArray[np.uint8]
) -> tuple[NDArray[np.bytes_], NDArray[np.uint8]]:
    """Sort by digest and keep the last of equal ones."""
    order = np.argsort(digests, kind="stable")
    digests, codes = digests[order], codes[order]
    last = np.ones(len(digests), dtype=bool)
    last[:-1] = digests[1:] != digests[:-1]
    return digests[last], codes[last]


WHY_UNKNOWN = "the run that was sending it ended before it wrote the outcome"


def sending_to_unknown(ledger_index: LedgerIndex) -> list[LedgerEntry]:
    """Turn every `sending` of an index into `unknown`; return the entries that say so.

    Call it only when no run can be sending, or in one that only reads.
    """
    ledger_index.change(DeliveryState.SENDING, DeliveryState.UNKNOWN)
    return [
        LedgerEntry(client, DeliveryState.UNKNOWN, entry.message_id, WHY_UNKNOWN, entry.resends)
        for client, entry in ledger_index.delivery_unknown.items()
        if entry.state is DeliveryState.SENDING
    ]
