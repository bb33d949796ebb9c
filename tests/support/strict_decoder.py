"""What a value of an input is, in plain Python: the reference of holders/spark/decoding.py.

The rules are those of docs/compaction.md: UTF-8, exactly one JSON object as RFC 8259 has it, of a
field that is given twice the last, no halves of surrogate pairs, fields of the declared types.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, NoReturn

from shardpost.holders.model.fields import NOT_BLANK, Field, FieldType

MAX_DIGITS = 38


@dataclass(frozen=True)
class Decoded:
    """A value's columns, or why it is rejected: its reason up to what was found."""

    columns: tuple[str | bool | None, ...] = ()
    reason: str | None = None


class Number(str):
    """A JSON number as it was written."""

    __slots__ = ()


def decode(value: bytes, fields: tuple[Field, ...]) -> Decoded:
    """Decode a value with those fields."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return Decoded(reason="expected a value in UTF-8")
    form = _parsed(text)
    if not isinstance(form, dict):
        return Decoded(reason="expected one JSON object")
    if any("\ud800" <= char <= "\udfff" for found in _texts(form) for char in found):
        return Decoded(reason="expected surrogates in pairs")
    for field in fields:
        if not _fits(form.get(field.name), field):
            return Decoded(reason=f"expected {field.expected} for {field.name}")
        if field.is_id and not form[field.name].strip():
            return Decoded(reason=f"expected {NOT_BLANK} for {field.name}")
    return Decoded(tuple(_column(form.get(field.name)) for field in fields))


def _parsed(text: str) -> Any:
    try:
        return json.loads(
            text, parse_int=Number, parse_float=Number, parse_constant=_refuse, strict=True
        )
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _texts(form: Any) -> Iterator[str]:
    if isinstance(form, str):
        yield form
    elif isinstance(form, dict):
        for name, value in form.items():
            yield name
            yield from _texts(value)
    elif isinstance(form, list):
        for value in form:
            yield from _texts(value)


def _fits(value: Any, field: Field) -> bool:
    if value is None:
        return not field.required
    return (
        type(value)
        is {FieldType.TEXT: str, FieldType.FLAG: bool, FieldType.NUMBER: Number}[field.type]
    )


def _column(value: Any) -> str | bool | None:
    return canonical(value) if isinstance(value, Number) else value


def canonical(number: str) -> str:
    """Return a number without needless zeros if MAX_DIGITS hold it, else as it was written."""
    if "e" in number.lower():  # whose exponent may have more digits than Python's decimals
        return number
    sign, digits, exponent = Decimal(number).as_tuple()
    assert isinstance(exponent, int)
    if len(digits) > MAX_DIGITS or -exponent > MAX_DIGITS:
        return number
    if not any(digits):
        return "0"
    return format(Decimal((sign, digits, exponent)).normalize(Context(prec=MAX_DIGITS)), "f")
