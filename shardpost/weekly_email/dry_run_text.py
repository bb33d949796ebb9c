"""A dry run's lists as text, for a person: read from their files, line by line."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from shardpost.printable import one_line
from shardpost.weekly_email.forecast import DryRunList


def text_lines(result: dict[str, Any], folder: Path, most: int | None = None) -> Iterator[str]:
    """Yield the lines of a dry run's text; `most` is how many clients a list names, None for all.

    `result` is the dry run's, and `folder` has its lists.
    """
    week, counts = result["week"], result["counts"]
    compared = f"compared with {result['compared_with']}"
    headings = {
        DryRunList.RECIPIENTS: "would get an e-mail:",
        DryRunList.SUPPRESSED: "would be suppressed:",
        DryRunList.FAILED: "would fail:",
        DryRunList.UNCHANGED: "would stay as they are:",
        DryRunList.NEW: f"new, {compared}:",
        DryRunList.LEFT: f"left, {compared}:",
    }
    for kind, heading in headings.items():
        if not counts[kind]:
            continue
        if kind is not DryRunList.RECIPIENTS:
            yield f"{heading}\n"
        with (folder / kind).open() as lines:
            for line in islice(lines, most):
                yield f"{one_line(_text(json.loads(line)))}\n"
        if most is not None and counts[kind] > most:
            more = counts[kind] - most
            yield f"… and {more} more: `shardpost email --week {week} --dry-run` lists them\n"
    yield f"{summary(result)}; nothing was sent\n"


def summary(result: dict[str, Any]) -> str:
    """Return in words how many clients are in which list."""
    counts = result["counts"]
    parts = [f"{counts[DryRunList.RECIPIENTS]} would get an e-mail"]
    parts += [
        f"{counts[kind]} {what}"
        for kind, what in (
            (DryRunList.SUPPRESSED, "would be suppressed"),
            (DryRunList.FAILED, "would fail"),
            (DryRunList.UNCHANGED, "would stay as they are"),
        )
        if counts[kind]
    ]
    if result["compared_with"]:
        new, left = counts[DryRunList.NEW], counts[DryRunList.LEFT]
        parts.append(f"{new} new and {left} left since {result['compared_with']}")
    return ", ".join(parts)


def _text(one: Any) -> str:
    match one:
        case str():
            return one
        case {"positions": positions}:
            return f"{one['client']} <{one['email']}>, shard {one['shard']}: {', '.join(positions)}"
        case _:
            return f"{one['client']}, shard {one['shard']}: {one['reason']}"
