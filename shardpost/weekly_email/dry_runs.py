"""What a run would do now to each client, as lists in a Parquet file.

The command, the log and the page read it. Each row group holds one list, so a page of a list is in
one or two groups. The file's metadata describe the lists as JSON. People get them as text.

The lists of the last dry run of each week are kept for paging: beside the tables, a folder per week
and run with a file per group of shards. They contain addresses and holdings, so they are deleted
with the week's audience, and all of them when a client is erased: a dry run is cheap to repeat.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from shardpost.delta import snapshots, stored_files
from shardpost.delta.arrow_schema import schema_of
from shardpost.delta.snapshot import UnknownExchanges
from shardpost.delta.storage import Tables
from shardpost.delta.table import Array, Table, columns
from shardpost.errors import UsageError, one_line, shown, visible
from shardpost.weekly_email.email_job import shard_text
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.prepared_week import PreparedWeek


class DryRunList(StrEnum):
    """The lists of a dry run. Each client is in one of the first four."""

    RECIPIENTS = "recipients"
    SUPPRESSED = "suppressed"
    FAILED = "failed"
    UNCHANGED = "unchanged"  # would not change: mailed already, held, or open
    NEW = "new"  # would get one this week and got none in the week compared with
    LEFT = "left"  # the reverse

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of `LINES` in this list."""
        if self is DryRunList.RECIPIENTS:
            return ("client", "shard", "email", "positions")
        return ("client",) if self in COMPARED else ("client", "shard", "reason")


COMPARED = (DryRunList.NEW, DryRunList.LEFT)  # with another week
MEANS = {
    DryRunList.RECIPIENTS: "would get an e-mail",
    DryRunList.SUPPRESSED: "would be suppressed",
    DryRunList.FAILED: "would fail",
    DryRunList.UNCHANGED: "would not change",
    DryRunList.NEW: "are new",
    DryRunList.LEFT: "have left",
}
# A client in a list; columns that the list does not use are null.
LINES = (
    *columns("list STRING, client STRING, shard INT, reason STRING, email STRING"),
    ("positions", Array("STRING")),
)
LINES_SCHEMA = schema_of(LINES)

NAME = "dry_run.parquet"  # in a job's folder
GROUP = 2_000  # lines that are read together
_ABOUT = "dry_run"


def write(path: Path, lines: Iterable[dict[str, Any]], about: Mapping[str, Any]) -> None:
    """Write rows of `LINES` and their description, with a few row groups in memory."""
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
    """The lists of a dry run, a file for each group of shards, and their description."""

    about: Mapping[str, Any]
    files: Sequence[pq.ParquetFile]

    @classmethod
    def at(cls, path: Path | str, system: fs.FileSystem | None = None) -> "DryRunLists":
        """Open the file at a path."""
        file = pq.ParquetFile(path, filesystem=system)
        return cls(json.loads(file.metadata.metadata[_ABOUT.encode()]), (file,))

    @property
    def counts(self) -> dict[str, int]:
        """The number of lines in each list."""
        return {str(kind): self.count(kind) for kind in DryRunList}

    def count(self, kind: DryRunList, search: str = "") -> int:
        """Return how many lines of a list have a client id that contains that text."""
        return sum(len(rows) for _, _, rows in self._found(kind, search))

    def lines(self, kind: DryRunList, search: str = "", first: int = 0) -> Iterator[Any]:
        """Yield those lines from an index on: the list's fields, or just the client."""
        for file, group, rows in self._found(kind, search):
            if first < len(rows):
                chosen = pa.array(rows[first:], pa.int64())
                for line in file.read_row_group(group, kind.fields).take(chosen).to_pylist():
                    yield line if len(line) > 1 else line["client"]
            first = max(0, first - len(rows))

    def _found(
        self, kind: DryRunList, search: str
    ) -> Iterator[tuple[pq.ParquetFile, int, Sequence[int]]]:
        """Yield the row groups of a list, and which of their rows match."""
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
    """Yield a dry run as lines of text, with at most `most` clients per list (None: all)."""
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
    """Return a sentence with the number of clients in each list."""
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
            return visible(line)
        case {"positions": positions}:
            ids = ", ".join(map(shown, positions))
            return f"{shown(line['client'])} <{line['email']}>, shard {line['shard']}: {ids}"
        case _:
            return f"{shown(line['client'])}, shard {line['shard']}: {line['reason']}"


# Not a Delta table, but stored beside the tables.
FOLDER = Table("dry_runs", ())


def keep(tables: Tables, week: PreparedWeek, run: str, lists: Path) -> None:
    """Keep the lists of a run in place of those of the week's earlier runs.

    Skipped if a client was erased since the week was prepared, since it may be in the lists.
    """
    name = str(week.iso_week)
    folder = f"{name}/{re.sub(r'[^A-Za-z0-9_.-]+', '-', run)}"
    for other in _folders(tables, name):
        if other != folder:
            stored_files.delete_folder(tables, FOLDER, other)
    part = f"{folder}/{shard_text(week.shards)}.parquet"
    stored_files.make_folder_of(tables, FOLDER, part)
    system, path = stored_files.folder(tables, FOLDER, part)
    # Renamed last: a file with its final name is complete even if a run is killed.
    fs.copy_files(str(lists), f"{path}.new", destination_filesystem=system)
    system.move(f"{path}.new", path)
    if snapshots.current(tables).erased_in != week.snapshot.erased_in:
        stored_files.delete(tables, FOLDER, [part])


def find(tables: Tables, week: IsoWeek) -> DryRunLists | None:
    """Return the last dry run of a week from its finished groups of shards, or None.

    `about` has the `counts` of the lists and the `shards` of each group.
    """
    system, path = stored_files.folder(tables, FOLDER, str(week))
    found = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
    parts = [DryRunLists.at(info.path, system) for info in found if info.extension == "parquet"]
    if not parts:
        return None
    newest = max((part.about for part in parts), key=lambda about: str(about["made_at"]))
    own = [part for part in parts if part.about["run"] == newest["run"]]
    own.sort(key=lambda part: list(part.about["shards"]))
    lists = DryRunLists(newest, [file for part in own for file in part.files])
    shards = [shard_text(part.about["shards"]) for part in own]
    return DryRunLists({**newest, "counts": lists.counts, "shards": shards}, lists.files)


def forget(tables: Tables) -> None:
    """Delete the lists of all weeks."""
    stored_files.delete_folder(tables, FOLDER)


def forget_old(tables: Tables, now: datetime, days: float) -> None:
    """Delete the lists of the weeks that ended more than so many days ago."""
    for name in _folders(tables, ""):
        with suppress(UsageError):  # a folder not named for a week is not ours
            if now - IsoWeek.parse(name).end > timedelta(days=days):
                stored_files.delete_folder(tables, FOLDER, name)


def _folders(tables: Tables, inside: str) -> list[str]:
    """Return the subfolders by their paths below the root."""
    system, path = stored_files.folder(tables, FOLDER, inside)
    infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    names = (info.base_name for info in infos if info.type == fs.FileType.Directory)
    return [f"{inside}/{name}" if inside else name for name in names]
