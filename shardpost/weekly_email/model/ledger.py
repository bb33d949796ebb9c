"""The ledger of the weekly e-mail: each client's state in each week.

The topic `weekly-emails` holds it: key `<week>/<client>`, value {"State", "MessageId", "Reason"},
"Resends" if there were any, and "Written" once a mail was handed to SMTP. The last record of a key
counts; no record, or a tombstone, means that the client is open: not mailed yet. The key of an
erased client is `<week>#<its hash>`, which no other client can have.

A closed week has a record in each partition whose key is the week alone. Kafka keeps these records
as long as the topic exists.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

from pydantic import AwareDatetime, ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_pascal

from shardpost.errors import ShardpostError, single_line

LONGEST_CLIENT = 65_536  # bytes in a key; a longer id, which cannot be mailed, is shortened
OF_CLIENT, OF_ERASED = "/", "#"  # between week and client in a key
WEEK_BYTES = len("2026-W47")  # in a key
LONGEST_MESSAGE_ID = 998  # characters (RFC 5322, 2.1.1)
LONGEST_FAULT = 200  # characters of a record's error


class DeliveryState(StrEnum):
    """The state of a client in a week."""

    SENDING = "sending"  # handed to SMTP from now on; without a later record: unknown
    SENT = "sent"
    FAILED = "failed"
    UNKNOWN = "unknown"  # delivery unknown
    SUPPRESSED = "suppressed"


# States of a client that got, or may have got, its mail.
HANDED_OVER = (DeliveryState.SENDING, DeliveryState.SENT, DeliveryState.UNKNOWN)


@dataclass(frozen=True)
class Written:
    """The source of a mail that was handed to SMTP, and its `digest`.

    Its positions are as of `as_of` at `snapshot`; name and address come from the snapshot
    `contacts`, or from the freeze if that is `snapshot`. `date` is its Date header.
    """

    __pydantic_config__: ClassVar = ConfigDict(alias_generator=to_pascal)

    snapshot: int
    as_of: AwareDatetime
    contacts: int
    date: AwareDatetime
    digest: str

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON for a record's value."""
        form: dict[str, Any] = _WRITTEN.dump_python(self, mode="json", by_alias=True)
        return form

    @classmethod
    def from_json(cls, form: Any) -> "Written | None":
        """Return what `to_json` wrote, or None for anything else."""
        try:
            return _WRITTEN.validate_python(form)
        except ValidationError:
            return None


_WRITTEN = TypeAdapter(Written)


class LedgerId(NamedTuple):
    """The subject of an entry: a client, or the hash of an erased client."""

    client: str
    is_erased: bool = False

    @classmethod
    def erased(cls, client: str) -> "LedgerId":
        """Return the subject of a client after its erasure."""
        return cls(erased_id(client), is_erased=True)

    def key(self, week: object) -> bytes:
        """Return its record key in a week."""
        between = OF_ERASED if self.is_erased else OF_CLIENT
        return f"{week}{between}{ledger_id(self.client)}".encode(errors="surrogatepass")


@dataclass(frozen=True)
class LedgerEntry:
    """One record of the ledger; state None is a tombstone, which opens the client again.

    `resends`: how often the mail was sent again after an unknown delivery. `written` is None if no
    mail was handed to SMTP, or if that is unknown.
    """

    client: str
    state: DeliveryState | None
    message_id: str = ""
    reason: str | None = None
    resends: int = 0
    is_erased: bool = False
    written: Written | None = None

    @property
    def id(self) -> LedgerId:
        """Whom it is about."""
        return LedgerId(self.client, self.is_erased)

    def value(self) -> bytes | None:
        """Return the record's value; None for a tombstone."""
        if self.state is None:
            return None
        document = {
            "State": str(self.state),
            "MessageId": self.message_id,
            "Reason": self.reason,
            **({"Resends": self.resends} if self.resends else {}),
            **({"Written": self.written.to_json()} if self.written else {}),
        }
        return json.dumps(document, ensure_ascii=False).encode(errors="replace")


def ledger_id(client: str) -> str:
    """Return the client's id in the ledger, shortened if no record can hold it."""
    encoded = client.encode(errors="surrogatepass")
    if len(encoded) <= LONGEST_CLIENT:
        return client
    return f"{client[:40]}… {len(encoded)} bytes, SHA-256 {sha256(encoded).hexdigest()}"


def erased_id(client: str) -> str:
    """Return the hash under which the ledger keeps an erased client.

    It is a pseudonym, not a secret: anybody with a list of client ids can resolve it.
    """
    return f"sha256:{sha256(client.encode(errors='surrogatepass')).hexdigest()}"


def decode(key: bytes | None, value: bytes | None, week: object) -> LedgerEntry | None:
    """Return the entry of a record, or None if it belongs to another week.

    An unreadable record of the week counts as `unknown`: its client may have been mailed.
    """
    if key is None or not is_of_week(key, week):
        return None
    text = key.removeprefix(str(week).encode()).decode(errors="replace")
    about = LedgerEntry(ledger_id(text[1:]), None, is_erased=text[0] == OF_ERASED)
    if value is None:
        return about
    try:
        return _entry(about, json.loads(value))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        fault = single_line(f"{type(error).__name__}: {error}", LONGEST_FAULT)
        reason = f"unreadable ledger record: {fault}"
        return replace(about, state=DeliveryState.UNKNOWN, reason=reason)


def is_of_week(key: bytes, week: object) -> bool:
    """Return whether a key belongs to a client in that week."""
    return key.startswith(tuple(f"{week}{between}".encode() for between in (OF_CLIENT, OF_ERASED)))


def _entry(about: LedgerEntry, document: dict[str, Any]) -> LedgerEntry:
    """Return the entry of a value; raises TypeError or ValueError if it is not ours."""
    state, message_id = DeliveryState(document["State"]), document.get("MessageId") or ""
    reason, resends = document.get("Reason"), document.get("Resends", 0)
    if not isinstance(message_id, str) or len(message_id) > LONGEST_MESSAGE_ID:
        raise TypeError(f"expected a MessageId of up to {LONGEST_MESSAGE_ID} characters")
    if not isinstance(reason, str | None):
        raise TypeError("expected Reason to be text")
    if type(resends) is not int or resends < 0:
        raise TypeError("expected Resends to be a number")
    written = Written.from_json(document.get("Written"))
    entry = replace(about, state=state, message_id=message_id, reason=reason)
    return replace(entry, resends=resends, written=written)


# What is `sending` when a week is closed becomes unknown.
CLOSED_STATES: tuple[DeliveryState, ...] = tuple(
    state for state in DeliveryState if state is not DeliveryState.SENDING
)


class WeekClosedError(ShardpostError):
    """The week is closed and can no longer be mailed."""


def closed_key(week: object) -> bytes:
    """Return the key of the record that closes a week."""
    return str(week).encode()


def closed_value(counts: Mapping[DeliveryState, int], at: datetime) -> bytes:
    """Return its value: the time, and the shard's number of clients in each state."""
    known = {str(state): counts.get(state, 0) for state in CLOSED_STATES}
    return json.dumps({"State": "closed", "At": at.isoformat(), "Counts": known}).encode()


def closed_counts(value: bytes | None) -> dict[DeliveryState, int]:
    """Return the counts of such a value, or zeros if it is unreadable: it closes the week, too."""
    try:
        known = json.loads(value or b"")["Counts"]
        return {state: int(known[state]) for state in CLOSED_STATES}
    except (ValueError, KeyError, TypeError, RecursionError):
        return dict.fromkeys(CLOSED_STATES, 0)
