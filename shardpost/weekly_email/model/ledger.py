"""The ledger of the weekly e-mail: what was decided and done, per week and client.

The topic `weekly-emails` holds it: key `<week>/<client>`, value {"State", "MessageId", "Reason"}.
The last record of a key counts; none, or a tombstone, means that the client is open: not mailed
yet.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

CAMPAIGN = "weekly-holdings"


class DeliveryState(StrEnum):
    """What the ledger says of a client in a week."""

    SENDING = "sending"  # handed to SMTP from now on; without a later record: unknown
    SENT = "sent"
    FAILED = "failed"
    UNKNOWN = "unknown"  # delivery unknown
    SUPPRESSED = "suppressed"


@dataclass(frozen=True)
class LedgerEntry:
    """One record of the ledger; state None is a tombstone, which opens the client again."""

    client: str
    state: DeliveryState | None
    message_id: str = ""
    reason: str | None = None

    def key(self, week: object) -> bytes:
        """Return the record's key."""
        return f"{week}/{self.client}".encode(errors="surrogatepass")

    def value(self) -> bytes | None:
        """Return the record's value; None for a tombstone."""
        if self.state is None:
            return None
        document = {
            "State": str(self.state),
            "MessageId": self.message_id,
            "Reason": self.reason,
        }
        return json.dumps(document, ensure_ascii=False).encode(errors="replace")


def message_id(week: object, client: str, domain: str) -> str:
    """Return the Message-ID: a hash of campaign, week and client, the same for every attempt."""
    text = f"{CAMPAIGN}\0{week}\0{client}"
    return f"<{sha256(text.encode(errors='surrogatepass')).hexdigest()[:40]}@{domain}>"


def decode(key: bytes | None, value: bytes | None, week: object) -> LedgerEntry | None:
    """Return the entry of a record, or None if it is not of that week.

    A record of the week that cannot be read counts as `unknown`: its client may have been mailed.
    """
    prefix = f"{week}/".encode()
    if key is None or not key.startswith(prefix):
        return None
    client = key[len(prefix) :].decode(errors="replace")
    if value is None:
        return LedgerEntry(client, None)
    try:
        document = json.loads(value)
        return LedgerEntry(
            client,
            DeliveryState(document["State"]),
            document.get("MessageId") or "",
            document.get("Reason"),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return LedgerEntry(client, DeliveryState.UNKNOWN, "", f"unreadable ledger record: {error}")


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
    """Whom a run mails beside the open clients: those that are unknown, those that had failed."""

    resend_unknown: bool = False
    again_failed: bool = False

    def selects(self, state: DeliveryState | None) -> bool:
        """Tell whether a client in that state (None: open) is mailed by this run.

        A `sending` without outcome is unknown; `sent` and `suppressed` are final.
        """
        match state:
            case None:
                return True
            case DeliveryState.SENDING | DeliveryState.UNKNOWN:
                return self.resend_unknown
            case DeliveryState.FAILED:
                return self.again_failed
            case DeliveryState.SENT | DeliveryState.SUPPRESSED:
                return False
