"""What a run would do now to each client, as lists: a file for each, in a folder of the job.

Each line of a file is a client in JSON. The command prints them, a task's log has the first of
each. Nothing of them is kept: they contain addresses and holdings.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

from shardpost.delta.arrow_schema import schema_of
from shardpost.delta.snapshot import UnknownExchanges
from shardpost.delta.table import Array, columns
from shardpost.errors import one_line, shown


class DryRunList(StrEnum):
    """The lists of a dry run. Each client is in one of them."""

    RECIPIENTS = "recipients"
    SUPPRESSED = "suppressed"
    FAILED = "failed"
    UNCHANGED = "unchanged"  # would not change: mailed already, held, or open

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of `LINES` in this list."""
        if self is DryRunList.RECIPIENTS:
            return ("client", "shard", "email", "positions")
        return ("client", "shard", "reason")


MEANS = {
    DryRunList.RECIPIENTS: "would get an e-mail",
    DryRunList.SUPPRESSED: "would be suppressed",
    DryRunList.FAILED: "would fail",
    DryRunList.UNCHANGED: "would not change",
}
# A client in a list; columns that the list does not use are null.
LINES = (
    *columns("list STRING, client STRING, shard INT, reason STRING, email STRING"),
    ("positions", Array("STRING")),
)
LINES_SCHEMA = schema_of(LINES)


def write(folder: Path, rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Write rows of `LINES` into the files of a folder; return how many each list has."""
    counts = Counter[str](dict.fromkeys(map(str, DryRunList), 0))
    with ExitStack() as opened:
        files = {kind: opened.enter_context(_path(folder, kind).open("w")) for kind in DryRunList}
        for row in rows:
            kind = DryRunList(row["list"])
            line = {name: row[name] for name in kind.fields}
            files[kind].write(f"{json.dumps(line)}\n")
            counts[kind] += 1
    return {**counts}


def lines(folder: Path, kind: DryRunList) -> Iterator[dict[str, Any]]:
    """Yield the lines of a list: its fields."""
    with _path(folder, kind).open() as file:
        yield from map(json.loads, file)


def _path(folder: Path, kind: DryRunList) -> Path:
    return folder / f"{kind}.jsonl"


def text_lines(result: Mapping[str, Any], folder: Path, most: int | None = None) -> Iterator[str]:
    """Yield a dry run as lines of text, with at most `most` clients per list (None: all)."""
    week, counts = result["week"], result["counts"]
    for kind in DryRunList:
        if not counts[kind]:
            continue
        if kind is not DryRunList.RECIPIENTS:
            yield f"{MEANS[kind]}:\n"
        for line in islice(lines(folder, kind), most):
            yield f"{one_line(_text(line))}\n"
        if most is not None and counts[kind] > most:
            more = counts[kind] - most
            yield f"… and {more} more: `shardpost email --week {week} --dry-run` lists them\n"
    yield f"{summary(result)}; nothing was sent\n"


def summary(result: Mapping[str, Any]) -> str:
    """Return a sentence with the number of clients in each list."""
    counts = result["counts"]
    parts = [
        f"{counts[kind]} {what}"
        for kind, what in MEANS.items()
        if kind is DryRunList.RECIPIENTS or counts[kind]
    ]
    if unknown := result["unknown_exchanges"]:
        parts.append(str(UnknownExchanges.of(unknown)))
    return ", ".join(parts)


def _text(line: dict[str, Any]) -> str:
    where = f"shard {line['shard']}"
    if "positions" in line:
        ids = ", ".join(map(shown, line["positions"]))
        return f"{shown(line['client'])} <{line['email']}>, {where}: {ids}"
    return f"{shown(line['client'])}, {where}: {line['reason']}"
