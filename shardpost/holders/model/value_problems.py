"""What is wrong with a value before it is written: for a person who corrects one.

spark/decoding.py decides, and is stricter about what is no JSON; what both find, they say alike.
"""

import json
from collections.abc import Iterable

from shardpost.holders.model.fields import NOT_BLANK, Field, FieldType

# As spark/decoding.py quotes them.
MAX_QUOTED = 100


def first_problem(value: bytes, fields: tuple[Field, ...]) -> str | None:
    """Return why a value with these fields would be rejected; None if nothing is found."""
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
            said = own_text if field.name in found else _like(field.name, found)
            return f"expected {expected} for {field.name}, found {said[:MAX_QUOTED]}"
    return None


def _like(name: str, found: Iterable[str]) -> str:
    """Return the first field that has the name in another case, or `nothing`."""
    others = (f"{other}: did you mean {name}?" for other in found if other.lower() == name.lower())
    return next(others, "nothing")


def _is_of(type_: FieldType, value: object) -> bool:
    is_flag = isinstance(value, bool)  # which is a number, too, for Python
    if type_ is FieldType.NUMBER:
        return isinstance(value, int | float) and not is_flag
    return is_flag if type_ is FieldType.FLAG else isinstance(value, str)
