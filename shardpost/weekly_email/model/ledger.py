"""The ledger of the weekly e-mail: what was decided and done, per week and client.

The topic `weekly-emails` holds it: key `<week>/<client>`, value {"State", "MessageId", "Reason"},
and "Resends" if there were any. The last record of a key counts; none, or a tombstone, means that
the client is open: not mailed yet.

What the ledger says of every client of a shard in one week, in a few bytes per client.

When a delivery is unknown: the ledger says `sending`, and nothing after it.

The ledger says `sending` before SMTP speaks, and the outcome afterwards. A run that ends in between
leaves the first without the second: whether the mail was delivered is unknown.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardpost.weekly_email.model.single_line import single_line

# How often a mail whose delivery is unknown may be sent again, per client and week.
MOST_RESENDS = 1
# Bytes of a client id in a key; a longer one, which no mail can be written to, is shortened.
LONGEST_CLIENT = 65_536
# How the id of a client begins whose data were erased.
ERASED = "sha256:"
# Characters of a MessageId (RFC 5322, 2.1.1), and of what is wrong with a record.
LONGEST_MESSAGE_ID = 998
LONGEST_FAULT = 200


class DeliveryState(StrEnum):
    """What the ledger says of a client in a week."""

    SENDING = "sending"  # handed to SMTP from now on; without a later record: unknown
    SENT = "sent"
    FAILED = "failed"
    UNKNOWN = "unknown"  # delivery unknown
    SUPPRESSED = "suppressed"


@dataclass(frozen=True)
class LedgerEntry:
    """One record of the ledger; state None is a tombstone, which opens the client again.

    `resends`: how often the mail was sent again after a delivery that was unknown.
    """

    client: str
    state: DeliveryState | None
    message_id: str = ""
    reason: str | None = None
    resends: int = 0

    def key(self, week: object) -> bytes:
        """Return the record's key."""
        return f"{week}/{ledger_id(self.client)}".encode(errors="surrogatepass")

    def value(self) -> bytes | None:
        """Return the record's value; None for a tombstone."""
        if self.state is None:
            return None
        document = {
            "State": str(self.state),
            "MessageId": self.message_id,
            "Reason": self.reason,
            **({"Resends": self.resends} if self.resends else {}),
        }
        return json.dumps(document, ensure_ascii=False).encode(errors="replace")


def ledger_id(client: str) -> str:
    """Return the client's id in the ledger: its own, or a short one if no record can hold that."""
    encoded = client.encode(errors="surrogatepass")
    if len(encoded) <= LONGEST_CLIENT:
        return client
    return f"{client[:40]}… {len(encoded)} bytes, SHA-256 {sha256(encoded).hexdigest()}"


def erased_id(client: str) -> str:
    """Return the id under which the ledger has a client whose data were erased.

    It is a pseudonym, and no secret: who has a list of client ids can find out whose it is.
    """
    return f"{ERASED}{sha256(client.encode(errors='surrogatepass')).hexdigest()}"


def message_id(list_id: str, week: object, client: str, domain: str) -> str:
    """Return the Message-ID: a hash of the list's id, week and client, the same at every attempt.

    Two installations that send from one domain need two list ids: else a receiver may take the
    e-mail of the one for that of the other, and drop it.
    """
    text = f"{list_id}\0{week}\0{client}"
    return f"<{sha256(text.encode(errors='surrogatepass')).hexdigest()[:40]}@{domain}>"


def decode(key: bytes | None, value: bytes | None, week: object) -> LedgerEntry | None:
    """Return the entry of a record, or None if it is not of that week.

    A record of the week that cannot be read counts as `unknown`: its client may have been mailed.
    """
    prefix = f"{week}/".encode()
    if key is None or not key.startswith(prefix):
        return None
    client = ledger_id(key[len(prefix) :].decode(errors="replace"))
    if value is None:
        return LedgerEntry(client, None)
    try:
        return _entry(client, json.loads(value))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        fault = single_line(f"{type(error).__name__}: {error}", LONGEST_FAULT)
        return LedgerEntry(client, DeliveryState.UNKNOWN, "", f"unreadable ledger record: {fault}")


def _entry(client: str, document: dict[str, Any]) -> LedgerEntry:
    """Return the entry of a value; TypeError or ValueError if it is not one that we write."""
    state, message_id = DeliveryState(document["State"]), document.get("MessageId") or ""
    reason, resends = document.get("Reason"), document.get("Resends", 0)
    if not isinstance(message_id, str) or len(message_id) > LONGEST_MESSAGE_ID:
        raise TypeError(f"expected a MessageId of up to {LONGEST_MESSAGE_ID} characters")
    if not isinstance(reason, str | None):
        raise TypeError("expected text as Reason")
    if type(resends) is not int or resends < 0:
        raise TypeError("expected a number of Resends")
    return LedgerEntry(client, state, message_id, reason, resends)


def fold(entries: Iterable[LedgerEntry]) -> dict[str, LedgerEntry]:
    """Return the last entry of each client, in any state but open."""
    last: dict[str, LedgerEntry] = {}
    for entry in entries:
        if entry.state is None:
            last.pop(entry.client, None)
        else:
            last[entry.client] = entry
    return last


@dataclass(frozen=True)
class ResendPolicy:
    """Whom a run mails beside the open clients: those that are unknown, failed, or suppressed."""

    resend_unknown: bool = False
    again_failed: bool = False
    again_suppressed: bool = False

    def selects(self, state: DeliveryState | None, resends: int = 0) -> bool:
        """Tell whether a client in that state (None: open) is mailed by this run.

        A `sending` without outcome is unknown; `sent` is final. What was sent again `resends`
        times, and is still unknown, is left to a person.
        """
        match state:
            case None:
                return True
            case DeliveryState.SENDING | DeliveryState.UNKNOWN:
                return self.resend_unknown and resends < MOST_RESENDS
            case DeliveryState.FAILED:
                return self.again_failed
            case DeliveryState.SUPPRESSED:
                return self.again_suppressed
            case DeliveryState.SENT:
                return False


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
    def fold(cls, entries: Iterable[LedgerEntry]) -> "LedgerIndex":
        """Fold the ledger's entries, oldest first: the last of each client counts."""
        digests, codes = bytearray(), bytearray()
        delivery_unknown: dict[str, LedgerEntry] = {}
        resends: dict[str, int] = {}
        has_erased = False
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
        found = self._states(clients)
        if not self.has_erased:
            return found
        erased = self._states([erased_id(client) for client in clients])
        return [one if one is not None else other for one, other in zip(found, erased, strict=True)]

    def resent(self, client: str) -> int:
        """Return how often a client's mail was sent again."""
        return self.resends.get(client) or self.resends.get(erased_id(client), 0)

    def unknown(self, client: str) -> LedgerEntry:
        """Return the last entry of a client whose delivery is unknown; KeyError of any other."""
        own = client if client in self.delivery_unknown else erased_id(client)
        return self.delivery_unknown[own]

    def _states(self, clients: Sequence[str]) -> list[DeliveryState | None]:
        wanted = _array(b"".join(map(_digest, clients)))
        if not len(self.digests):
            return [None] * len(wanted)
        at = np.searchsorted(self.digests, wanted).clip(max=len(self.digests) - 1)
        codes = np.where(self.digests[at] == wanted, self.codes[at], 0)
        return [STATES[code] for code in codes.tolist()]

    def counts(self) -> Counter[DeliveryState]:
        """Return how many clients are in each state; the open ones are not counted."""
        found = np.bincount(self.codes, minlength=len(STATES)).tolist()
        return Counter({state: found[code] for state, code in _CODES.items() if state is not None})

    def change(self, before: DeliveryState, after: DeliveryState) -> None:
        """Put all clients that are in one state into another."""
        self.codes[self.codes == _CODES[before]] = _CODES[after]


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


REASON = "the run that was sending it ended before it wrote the outcome"


def sending_to_unknown(ledger_index: LedgerIndex) -> list[LedgerEntry]:
    """Turn every `sending` of an index into `unknown`; return the entries that say so.

    To be called when no run can be sending any more, or by one that only reads.
    """
    ledger_index.change(DeliveryState.SENDING, DeliveryState.UNKNOWN)
    return [
        LedgerEntry(client, DeliveryState.UNKNOWN, entry.message_id, REASON, entry.resends)
        for client, entry in ledger_index.delivery_unknown.items()
        if entry.state is DeliveryState.SENDING
    ]
