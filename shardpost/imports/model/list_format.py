"""What a list has to look like: the columns of what it is imported into, by its profile.

A profile says how files of CSV are written, and what they call our columns: brokers export them as
they do. Without one they are UTF-8, and those of RFC 4180.
"""

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictStr, model_validator

from shardpost.errors import ShardpostError
from shardpost.holders.model import fields as input_fields
from shardpost.wording import meant

InputName = Literal["positions", "clients", "exchanges"]
# The watermark of each row of an increment: a column of its frames.
WATERMARK = "watermark"


def _encoding(name: str) -> str:
    try:
        "".encode(name)  # LookupError of what encodes no text, too
        return "utf-8-sig" if codecs.lookup(name).name == "utf-8" else name
    except (LookupError, ValueError):
        raise ValueError("expected an encoding of text, such as utf-8 or iso-8859-1") from None


def _column(name: str) -> str:
    known = dict.fromkeys(name for target in TARGETS.values() for name in target.columns)
    if name not in known:
        raise ValueError(f"expected one of {', '.join(known)}{meant(name, known)}")
    return name


Mark = Annotated[StrictStr, Field(pattern=r"^[^\w\r\n]$")]
Column = Annotated[StrictStr, AfterValidator(_column)]
Text = Annotated[StrictStr, Field(min_length=1)]
Lines = Annotated[int, Field(ge=0, le=1000)]


class Profile(BaseModel):
    """How files of CSV are written: what stands in `profiles/NAME.yml`.

    `preamble` lines stand above the header; behind the rows stand `footer_lines` lines, of which
    the first begins with `footer`: a list without it was cut. `columns` are the names of ours in
    the files, and `values` those of columns that they lack, or have otherwise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoding: Annotated[StrictStr, AfterValidator(_encoding)] = "utf-8-sig"
    delimiter: Mark = ","
    quote: Mark = '"'
    preamble: Lines = 0
    footer: Text | None = None
    footer_lines: Lines = 1
    decimal: Mark = "."
    thousands: Mark | None = None
    columns: Mapping[Column, Text] = {}
    values: Mapping[Column, StrictStr] = {}

    @model_validator(mode="after")
    def _require_distinct(self) -> Self:
        if self.quote == self.delimiter or self.thousands == self.decimal:
            raise ValueError("expected two characters as delimiter and quote, and as decimal marks")
        return self


NO_PROFILE = Profile()


class SourceColumn(NamedTuple):
    """A column of a list, and Spark's name for its type; of text files all are `string`."""

    name: str
    type: str = "string"


# {a column: that of the list}, and the names of those that are ignored, in their order.
FoundColumns = tuple[dict[str, SourceColumn], tuple[str, ...]]
_WHOLE = r"string|(var)?char\(\d+\)|(tiny|small|big)?int|decimal\(\d+,0\)"
# Of what fields may have besides: what is said, and types. Of an amount of true a row is rejected.
_MORE = {
    input_fields.FieldType.TEXT: ("whole numbers", ""),
    input_fields.FieldType.NUMBER: ("numbers", r"|float|double|decimal\(\d+,\d+\)|boolean"),
    input_fields.FieldType.FLAG: ("true or false", "|boolean"),
}


@dataclass(frozen=True)
class Target:
    """What a list is imported into: an input, the name of its key, and the fields of its values.

    `watermark` is the name of that column in an increment.
    """

    topic: InputName
    key: str
    fields: tuple[input_fields.Field, ...]
    profile: Profile = NO_PROFILE
    watermark: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a list, which are the names in a record's value."""
        return (self.key, *(one.name for one in self.fields))

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Those columns, and WATERMARK of an increment."""
        return (*self.columns, WATERMARK) if self.watermark else self.columns

    @cached_property
    def read(self) -> dict[str, str]:
        """{column that is read of a list: its name there, as `plain`}."""
        named = {**self.profile.columns, WATERMARK: self.watermark or ""}
        read = [column for column in self.all_columns if column not in self.profile.values]
        return {column: plain(named.get(column, column)) for column in read}

    def type_of(self, column: str) -> input_fields.FieldType:
        """Return what the values of a column have to be."""
        return {one.name: one.type for one in self.fields}.get(column, input_fields.FieldType.TEXT)

    def require_type(self, where: str, column: str, type_: str, found: str | None = None) -> None:
        """Refuse, of whatever source, what is no text or whole number; of amounts, no number.

        1 would become 1.0, and so another position or client. `type_` is Spark's name of the type.
        """
        said, more = _MORE[self.type_of(column)]
        if column != WATERMARK and not re.fullmatch(_WHOLE + more, type_):
            raise ShardpostError(
                f"{where}: expected text or {said} for {column}, found {found or type_}: write it"
                " as text: quoted in CSV, with a CAST in a query"
            )

    def find(self, where: str, there: Sequence[SourceColumn]) -> FoundColumns:
        """Return the columns of a list; ShardpostError for what is missing, twice or wrong."""
        columns: dict[str, SourceColumn] = {}
        wrong = []
        for column, name in self.read.items():
            found = [one for one in there if plain(one.name) == name]
            if len(found) == 1:
                columns[column] = found[0]
            else:
                said = column if plain(column) == name else f"{column} ({name})"
                wrong.append(f"{said} is {'duplicated' if found else 'missing'}")
        if wrong:
            expected = f"expected the columns {', '.join(self.read)}, each once"
            names = ", ".join(name for name, _ in there) or "none"
            raise ShardpostError(f"{where}: {expected}: {'; '.join(wrong)}; found {names}")
        for column, one in columns.items():
            self.require_type(where, column, one.type)
        read = self.read.values()
        ignored = (name or "(without a name)" for name, _ in there if plain(name) not in read)
        return columns, tuple(ignored)


def plain(name: str) -> str:
    """Return the name of a column in the one form in which names are compared."""
    return name.strip().lower()


TARGETS: dict[InputName, Target] = {
    "positions": Target("positions", "PositionId", input_fields.POSITION_FIELDS),
    "clients": Target("clients", "Client", input_fields.CLIENT_FIELDS),
    "exchanges": Target("exchanges", "Exchange", input_fields.EXCHANGE_FIELDS),
}
