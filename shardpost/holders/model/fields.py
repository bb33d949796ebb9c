"""What a record of an input is: its kind, and the JSON fields of its value.

With spark/decoding.py this decides how a record is decoded: spark/history.py names both. A person
who corrects a value hears what is wrong with it before a compaction reads it.
"""

import json
from dataclasses import dataclass
from enum import StrEnum

from shardpost.delta.table import Columns


class RecordKind(StrEnum):
    """Whether a record of an input sets its key, deletes it, or is undecodable and does neither.

    RECONCILED is no record of the input: `compact --reconcile` deleted the key, since the record at
    these coordinates, the latest that was read, was not in the topic any more. SKIPPED deletes it,
    too: what it says does not meet `where` of SHARDPOST_INPUTS.
    """

    UPSERT = "upsert"
    TOMBSTONE = "tombstone"
    REJECTED = "rejected"
    RECONCILED = "reconciled"
    SKIPPED = "skipped"


class FieldType(StrEnum):
    """What a JSON value has to be; its text is what an error says that was expected."""

    TEXT = "text"
    NUMBER = "a number"
    FLAG = "true or false"


NOT_BLANK = "non-blank text"
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
        return str(self.type) if self.required else f"{self.type} or nothing"

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


# The characters of a value that a reason quotes.
MAX_QUOTED = 100


def first_problem(value: bytes, fields: tuple[Field, ...]) -> str | None:
    """Return why a value with these fields would be rejected; None if no reason is known.

    For a person who corrects one: spark/decoding.py decides, and is stricter about what is no JSON;
    what both find, they say alike.
    """
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "expected a value in UTF-8, found other bytes"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return f"expected one JSON object, found {text[:MAX_QUOTED]}"
    for field in fields:
        own = found.get(field.name)
        is_left_out = own is None and not field.required
        expected = None if is_left_out or _is_of(field.type, own) else field.expected
        if expected is None and field.is_id and not str(own).strip():
            expected = NOT_BLANK
        if expected is not None:
            own_text = json.dumps(own, ensure_ascii=False, separators=(",", ":"))
            likes = (other for other in found if other.lower() == field.name.lower())
            nearest = (f"{other}: did you mean {field.name}?" for other in likes)
            said = own_text if field.name in found else next(nearest, "nothing")
            return f"expected {expected} for {field.name}, found {said[:MAX_QUOTED]}"
    return None


def _is_of(type_: FieldType, value: object) -> bool:
    is_flag = isinstance(value, bool)  # which is a number, too, for Python
    if type_ is FieldType.NUMBER:
        return isinstance(value, int | float) and not is_flag
    return is_flag if type_ is FieldType.FLAG else isinstance(value, str)
