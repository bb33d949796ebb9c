"""Shards as people write them: `0-3`, `2`, `0,2,5-7`; and groups of them, one task each."""

import re
from collections.abc import Sequence

from shardpost.errors import UsageError

_SPAN = re.compile(r"\s*([0-9]{1,6})\s*(?:-\s*([0-9]{1,6})\s*)?")


def parse(text: str | None, count: int) -> list[int]:
    """Return the named shards, ascending, each once; all of `count` if none is named."""
    if text is None or not text.strip():
        return list(range(count))
    named: set[int] = set()
    for part in text.split(","):
        first, last = _span(text, part)
        if last >= count:
            raise UsageError(f"shards {text!r}: expected 0 to {count - 1}, found {part.strip()}")
        named.update(range(first, last + 1))
    return sorted(named)


def require_form(text: str | None) -> None:
    """Refuse shards that are none, however many there are."""
    if text is not None and text.strip():
        for part in text.split(","):
            _span(text, part)


def _span(text: str, part: str) -> tuple[int, int]:
    """Return the first and the last shard of a part of the text."""
    found = _SPAN.fullmatch(part)
    if not found:
        raise UsageError(f"shards {text!r}: expected a form such as 0-3, 2 or 0,2,5-7")
    first, last = int(found[1]), int(found[2] or found[1])
    if first > last:
        raise UsageError(f"shards {text!r}: expected the lower number first, found {part.strip()}")
    return first, last


def text_of(shards: Sequence[int]) -> str:
    """Return ascending shards in the form that `parse` reads: [0, 1, 2, 5] is `0-2,5`."""
    spans: list[list[int]] = []
    for shard in shards:
        if spans and spans[-1][1] == shard - 1:
            spans[-1][1] = shard
        else:
            spans.append([shard, shard])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


def groups(shards: Sequence[int], size: int) -> list[list[int]]:
    """Cut shards into groups of `size`, one for each mapped task."""
    return [list(shards[i : i + size]) for i in range(0, len(shards), size)]


def label(shards: Sequence[int]) -> str:
    """Return a group's name: `shards 0-3`, or `shard 4`."""
    return f"{'shard' if len(shards) == 1 else 'shards'} {text_of(shards)}"
