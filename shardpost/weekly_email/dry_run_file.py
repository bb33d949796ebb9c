"""The lists of a dry run as a file of Parquet, which command, log and page read.

Each group of rows is of one list: so a page of a list is in one or two of them. What the lists are
of is JSON in the file's metadata. A person gets them as text.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from shardpost.delta.snapshot import UnknownExchanges
from shardpost.errors import one_line, shown
from shardpost.weekly_email.dry_run_lists import COMPARED, LINES_SCHEMA, MEANS, DryRunList

# The file's name in the folder of a job.
NAME = "dry_run.parquet"
# Lines that are read together.
GROUP = 2_000
_ABOUT = "dry_run"


def write(path: Path, lines: Iterable[dict[str, Any]], about: Mapping[str, Any]) -> None:
    """Write rows of `LINES`, and what they are of; needs memory for a few groups of them."""
    waiting: dict[str, list[dict[str, Any]]] = {kind: [] for kind in DryRunList}
    with pq.ParquetWriter(path, LINES_SCHEMA, compression="zstd") as file:
        for line in lines:
            group = waiting[line["list"]]
            group.append(line)
            if len(group) == GROUP:
                file.write_table(pa.Table.from_pylist(group, LINES_SCHEMA))
                group.clear()
        for group in filter(None, waiting.values()):
            file.write_table(pa.Table.from_pylist(group, LINES_SCHEMA))
        file.add_key_value_metadata({_ABOUT: json.dumps(about)})


@dataclass(frozen=True)
class DryRunLists:
    """The lists of a dry run, in a file for each group of shards, and what they are of."""

    about: Mapping[str, Any]
    files: Sequence[pq.ParquetFile]

    @classmethod
    def at(cls, path: Path | str, system: fs.FileSystem | None = None) -> "DryRunLists":
        """Open the file at a path."""
        file = pq.ParquetFile(path, filesystem=system)
        return cls(json.loads(file.metadata.metadata[_ABOUT.encode()]), (file,))

    @property
    def counts(self) -> dict[str, int]:
        """How many lines each list has."""
        return {str(kind): self.count(kind) for kind in DryRunList}

    def count(self, kind: DryRunList, search: str = "") -> int:
        """Return how many lines of a list have a client with that in its id."""
        return sum(len(rows) for _, _, rows in self._found(kind, search))

    def lines(self, kind: DryRunList, search: str = "", first: int = 0) -> Iterator[Any]:
        """Yield those lines from one on: the fields of the list, or the client if it is all."""
        for file, group, rows in self._found(kind, search):
            if first < len(rows):
                chosen = pa.array(rows[first:], pa.int64())
                for line in file.read_row_group(group, kind.fields).take(chosen).to_pylist():
                    yield line if len(line) > 1 else line["client"]
            first = max(0, first - len(rows))

    def _found(
        self, kind: DryRunList, search: str
    ) -> Iterator[tuple[pq.ParquetFile, int, Sequence[int]]]:
        """Yield the groups of rows of a list, and which of their rows have such a client."""
        for file in self.files:
            for group in range(file.num_row_groups):
                known = file.metadata.row_group(group)
                if known.column(0).statistics.min == kind:
                    rows: Sequence[int] = range(known.num_rows)
                    if search:
                        clients = file.read_row_group(group, ["client"]).column("client")
                        matches = pc.match_substring(clients, search)
                        rows = pc.indices_nonzero(matches).to_pylist()
                    yield file, group, rows


def text_lines(
    result: Mapping[str, Any], lists: DryRunLists, most: int | None = None
) -> Iterator[str]:
    """Yield the lines of a dry run's text; `most` is how many clients a list names, None for all.

    `result` is the dry run's.
    """
    week, counts = result["week"], result["counts"]
    for kind in DryRunList:
        if not counts[kind]:
            continue
        if kind in COMPARED:
            yield f"{kind}, compared with {result['compared_with']}:\n"
        elif kind is not DryRunList.RECIPIENTS:
            yield f"{MEANS[kind]}:\n"
        for line in islice(lists.lines(kind), most):
            yield f"{one_line(_text(line))}\n"
        if most is not None and counts[kind] > most:
            more = counts[kind] - most
            yield f"… and {more} more: `shardpost email --week {week} --dry-run` lists them\n"
    yield f"{summary(result)}; nothing was sent\n"


def summary(result: Mapping[str, Any]) -> str:
    """Return in words how many clients are in which list."""
    counts = result["counts"]
    parts = [
        f"{counts[kind]} {what}"
        for kind, what in MEANS.items()
        if kind is DryRunList.RECIPIENTS or (counts[kind] and kind not in COMPARED)
    ]
    if result["compared_with"]:
        new, left = counts[DryRunList.NEW], counts[DryRunList.LEFT]
        parts.append(f"{new} new and {left} left since {result['compared_with']}")
    if unknown := result["unknown_exchanges"]:
        parts.append(str(UnknownExchanges.of(unknown)))
    return ", ".join(parts)


def _text(line: Any) -> str:
    match line:
        case str():
            return shown(line)
        case {"positions": positions}:
            ids = ", ".join(map(shown, positions))
            return f"{shown(line['client'])} <{line['email']}>, shard {line['shard']}: {ids}"
        case _:
            return f"{shown(line['client'])}, shard {line['shard']}: {line['reason']}"
