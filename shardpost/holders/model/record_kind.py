"""The kinds of records in a history, as the column `kind` has them."""

from enum import StrEnum


class RecordKind(StrEnum):
    """Whether a record of an input sets its key, deletes it, or is undecodable and does neither."""

    UPSERT = "upsert"
    TOMBSTONE = "tombstone"
    REJECTED = "rejected"
