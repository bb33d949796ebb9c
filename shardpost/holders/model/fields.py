"""What a record of an input is: its kind, and the JSON fields of its value.

With spark/decoding.py this decides how a record is decoded: decoder_id.py names both.
"""

from dataclasses import dataclass
from enum import StrEnum

from shardpost.delta.table import Columns


class RecordKind(StrEnum):
    """Whether a record of an input sets its key, deletes it, or is undecodable and does neither.

    RECONCILED is no record of the input: `compact --reconcile` deleted the key, since the record at
    these coordinates, the latest that was read, was not in the topic any more.
    """

    UPSERT = "upsert"
    TOMBSTONE = "tombstone"
    REJECTED = "rejected"
    RECONCILED = "reconciled"


class FieldType(StrEnum):
    """What a JSON value has to be; its text is what an error says that was expected."""

    TEXT = "text"
    NUMBER = "a number"
    FLAG = "true or false"


NOT_BLANK = "text that is not blank"
# All characters that Python's `str.isspace` knows: Unicode's blanks.
BLANKS = "".join(filter(str.isspace, map(chr, range(0x3001))))


@dataclass(frozen=True)
class Field:
    """One JSON field, and its column. One that is not required may be missing or null.

    That of the id of a client may not be blank: empty, or of BLANKS alone.
    """

    name: str
    column: str
    type: FieldType
    required: bool = True
    is_id: bool = False

    @property
    def expected(self) -> str:
        """What the field has to be, in words."""
        return str(self.type) if self.required else f"{self.type}, or nothing,"

    @property
    def column_type(self) -> str:
        """The column's type in Spark SQL. Numbers are kept as text, so that no digit is lost."""
        return "BOOLEAN" if self.type is FieldType.FLAG else "STRING"


POSITION_FIELDS = (
    Field("Client", "client", FieldType.TEXT, is_id=True),
    Field("Ticker", "ticker", FieldType.TEXT),
    Field("Amount", "amount", FieldType.NUMBER),
    Field("Exchange", "exchange", FieldType.TEXT),
)
CLIENT_FIELDS = (
    Field("Name", "name", FieldType.TEXT, required=False),
    Field("Email", "email", FieldType.TEXT, required=False),
    Field("Subscribed", "subscribed", FieldType.FLAG),
)
EXCHANGE_FIELDS = (Field("Country", "country", FieldType.TEXT, required=False),)


def has_id_as_key(fields: tuple[Field, ...]) -> bool:
    """Tell whether the key of records with these fields is the id of a client."""
    return fields == CLIENT_FIELDS


def columns_of(fields: tuple[Field, ...]) -> Columns:
    """Return the columns that fields become."""
    return tuple((field.column, field.column_type) for field in fields)
