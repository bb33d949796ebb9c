"""The fold of a ledger that a test compares with, said plainly."""

from collections.abc import Iterable

from shardpost.weekly_email.model.ledger import LedgerEntry


def fold(entries: Iterable[LedgerEntry]) -> dict[str, LedgerEntry]:
    """Return the last entry of each client, in any state but open."""
    last: dict[str, LedgerEntry] = {}
    for entry in entries:
        if entry.state is None:
            last.pop(entry.client, None)
        else:
            last[entry.client] = entry
    return last
