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
    for first, last in _spans(text):
        if last >= count:
            raise UsageError(f"shards {text!r}: expected 0 to {count - 1}, found {last}")
        named.update(range(first, last + 1))
    return sorted(named)


def require_form(text: str) -> None:
    """Raise UsageError if `parse` could not read the text, however many shards there are."""
    if text.strip():
        _spans(text)


def _spans(text: str) -> list[tuple[int, int]]:
    """Return the first and the last shard of each part."""
    spans = []
    for part in text.split(","):
        found = _SPAN.fullmatch(part)
        if not found:
            raise UsageError(f"shards {text!r}: expected a form such as 0-3, 2 or 0,2,5-7")
        first, last = int(found[1]), int(found[2] or found[1])
        if first > last:
            raise UsageError(f"shards {text!r}: expected the lower one first, found {part.strip()}")
        spans.append((first, last))
    return spans


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
