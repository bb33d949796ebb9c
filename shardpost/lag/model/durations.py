"""Spans of time as people say them."""

from functools import lru_cache

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def in_words(seconds: float) -> str:
    """Return the two largest units of a span: `3 h 10 min`, `6 d 23 h`, `12 s`; rounded down."""
    return _in_words(int(seconds))


@lru_cache(maxsize=4096)  # many rows are of the same minute
def _in_words(left: int) -> str:
    parts = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        parts.append((count, unit))
    first = next((at for at, (count, _) in enumerate(parts) if count), len(parts) - 1)
    said = [f"{count} {unit}" for count, unit in parts[first : first + 2] if count]
    return " ".join(said) or "0 s"
