"""How durations, counts, sizes, shares, ranges and what was expected are written; and JSON."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from shardpost.errors import UsageError, shown

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def duration_text(duration: timedelta | float) -> str:
    """Return a duration in its two largest units: `3 h 10 min`, `6 d 23 h`, `12 s`; rounded down.

    A number is of seconds. What is negative is `0 s`.
    """
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return _duration_text(max(0, int(seconds)))


@lru_cache(maxsize=4096)  # many rows of `shardpost lag` are of the same minute
def _duration_text(left: int) -> str:
    parts = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        parts.append((count, unit))
    first = next((at for at, (count, _) in enumerate(parts) if count), len(parts) - 1)
    said = [f"{count} {unit}" for count, unit in parts[first : first + 2] if count]
    return " ".join(said) or "0 s"


def some_of(names: Sequence[str], most: int = 10, between: str = ", ") -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def json_text(document: object) -> str:
    """Return a document as JSON: of a value its own `as_json()`, else its fields by their names."""
    return json.dumps(document, default=_json_form)


def _json_form(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.as_json() if hasattr(value, "as_json") else vars(value)


def distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, as a hook of its parser; ValueError for a name that it has twice."""
    form = dict(pairs)
    if len(form) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the same name twice in one object: {name!r}")
    return form


def counted(count: int, one: str, more: str | None = None) -> str:
    """Return a number of things: `1 record`, `2 records`; `more` where no -s makes the plural."""
    return f"{count} {one if count == 1 else more or f'{one}s'}"


def meant(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return which of the known words may have been meant, to end a sentence; "" if none."""
    by_plain = {one.strip().casefold(): one for one in sorted(known)}
    nearest = get_close_matches(word.strip().casefold(), by_plain, n=1, cutoff=cutoff)
    return f": did you mean {shown(by_plain[nearest[0]])}?" if nearest else ""


def ranges_text(numbers: Iterable[int]) -> str:
    """Return ascending numbers as ranges, such as `1-3, 7`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ", ".join("-".join(map(str, one)) for one in ranges)


def in_bytes(size: float) -> str:
    """Return a size as people read it, such as 3.1 GB."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def share(value: object) -> float:
    """Return a share from 0 to 1, which may be given as a percentage: `5%` or `0.05`."""
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ValueError("expected a percentage such as 5%, or a share from 0 to 1 such as 0.05")
    return number


def parse_share(text: str) -> float:
    """Return `share` of a text; UsageError for anything else."""
    try:
        return share(text)
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}") from None


_NUMBER = "a whole number"
# {type of an error of Pydantic: what was expected}, where its own text speaks of Python.
_EXPECTED = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), _NUMBER),
    **dict.fromkeys(("dict_type", "model_type"), "a map of names"),
    "bool_parsing": "true or false",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number from {ge} on",
    "less_than_equal": "a number up to {le}",
    "literal_error": "{expected}",
    "string_type": "a single value",
}


def expected(problem: Mapping[str, Any]) -> str:
    """Return what was expected, by an error of Pydantic."""
    if wanted := _EXPECTED.get(problem["type"]):
        return f"expected {wanted.format(**problem.get('ctx', {}))}"
    return str(problem["msg"]).removeprefix("Value error, ")
