"""The kinds of records in a history, as the column `kind` has them."""

from enum import StrEnum


class RecordKind(StrEnum):
    """Whether a record of an input sets its key, deletes it, or is undecodable and does neither.

    RECONCILED is no record of the input: `compact --reconcile` deleted the key, since the record at
    these coordinates, the latest that was read, was not in the topic any more.
    """

    UPSERT = "upsert"
    TOMBSTONE = "tombstone"
    REJECTED = "rejected"
    RECONCILED = "reconciled"
