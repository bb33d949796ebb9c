"""When a delivery is unknown: the ledger says `sending`, and nothing after it.

The ledger says `sending` before SMTP speaks, and the outcome afterwards. A run that ends in between
leaves the first without the second: whether the mail was delivered is unknown.
"""

from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.ledger_index import LedgerIndex

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
