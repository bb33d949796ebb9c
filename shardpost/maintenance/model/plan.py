"""What one maintenance removes: which files and log entries no kept version of a table needs.

A version is read from the newest checkpoint at or before it, and the commits since; Delta writes a
checkpoint every tenth version. Everything from the newest checkpoint on is kept, since a reader may
have opened it.

A new file is in no version yet. So a file that is in no version is removed only if no run can be
about to commit it: a run writes files before it commits them, and one run at a time writes a table.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shardpost.delta.snapshot_retention import RETENTION_IN_WORDS
from shardpost.delta.table import LOG_FOLDER, StoredFile, Table
from shardpost.wording import counted, in_bytes, ranges_text

LOG = f"{LOG_FOLDER}/"
_ENTRY = re.compile(LOG + r"(\d{20})\.(json|checkpoint\.parquet)")
_CHECKPOINT = "checkpoint.parquet"


def unneeded_entries(
    files: Iterable[StoredFile], kept: Collection[int], settled: datetime
) -> list[StoredFile]:
    """Return the commits and checkpoints to remove, of all files of a table, oldest first.

    `kept` are the versions to be read later, besides the newest one. A checkpoint that was written
    after `settled` may not have been seen by who is reading now.
    """
    commits, checkpoints = log_entries(files)
    known = [version for version, file in checkpoints.items() if file.at <= settled]
    if not known:
        return []
    newest = max(known)
    spans = [  # from the checkpoint that each version is read from; 0: from the start
        (max((at for at in checkpoints if at <= version), default=0), version)
        for version in kept
        if version < newest
    ]
    needed = {version for first, last in spans for version in range(first, last + 1)}
    starts = {first for first, _ in spans}
    gone = [
        (version, file.path, file)
        for entries, stays in ((commits, needed), (checkpoints, starts))
        for version, file in entries.items()
        if version < newest and version not in stays
    ]
    return [file for *_, file in sorted(gone)]


def log_entries(files: Iterable[StoredFile]) -> tuple[dict[int, StoredFile], dict[int, StoredFile]]:
    """Return the commits, and the checkpoints, of all files of a table, by version."""
    commits: dict[int, StoredFile] = {}
    checkpoints: dict[int, StoredFile] = {}
    for file in files:
        if entry := _ENTRY.fullmatch(file.path):
            of_kind = checkpoints if entry[2] == _CHECKPOINT else commits
            of_kind[int(entry[1])] = file
    return commits, checkpoints


# Each write has a folder (or a file) whose name begins with the version that it is to become.
_NUMBERED = re.compile(r"(\d{8,})-")
_CHECKSUM = re.compile(r"(.*/)?\.([^/]+)\.crc")


def below_version(files: Iterable[StoredFile], committed: int) -> list[StoredFile]:
    """Return what to remove of the unneeded files of a table with the commit point of a snapshot.

    That is what was written for `committed`, the version of the newest snapshot, or for an earlier
    one: a run that goes on writes for later ones.
    """
    return [
        file
        for file in files
        if (number := _NUMBERED.match(file.path)) and int(number[1]) <= committed
    ]


def is_needed(path: str, needed: Collection[str]) -> bool:
    """Tell whether a file, or the one that it is the checksum of, is in a `needed` path."""
    if path in needed:
        return True
    checksum = _CHECKSUM.fullmatch(path)  # one of Spark's
    return checksum is not None and f"{checksum[1] or ''}{checksum[2]}" in needed


class NeededFiles:
    """What is replayed, in the order of the log, and `needed`, the paths that were found so far.

    A file that was added at version a and removed at version r is needed if there is a version v
    with a <= v < r among those of interest.
    """

    def __init__(self, versions: Collection[int]) -> None:
        self._versions = sorted(versions)
        self._added_at: dict[str, int] = {}
        self._at = -1
        self.needed: set[str] = set()

    @property
    def live(self) -> set[str]:
        """The files of the version that was replayed last."""
        return {*self._added_at}

    def commit(self, version: int, added: Iterable[str], removed: Iterable[str]) -> None:
        """Replay the commit of the next version."""
        for path in removed:
            self._remove(path, version)
        for path in added:
            self._added_at.setdefault(path, version)
        self._at = version

    def jump(self, version: int, paths: Iterable[str]) -> None:
        """Go on from a later version with these files; none of those between is of interest."""
        self.end()
        self._added_at = dict.fromkeys(paths, version)
        self._at = version

    def end(self) -> set[str]:
        """Return all that is needed, once the last version of interest was replayed."""
        for path in [*self._added_at]:
            self._remove(path, self._at + 1)
        return self.needed

    def _remove(self, path: str, version: int) -> None:
        added_at = self._added_at.pop(path, None)
        if added_at is None:
            return
        number = bisect_left(self._versions, added_at)
        if number < len(self._versions) and self._versions[number] < version:
            self.needed.add(path)


@dataclass(frozen=True)
class TablePlan:
    """What is removed of a table in one folder: data files, then entries of its log.

    `is_whole`: that is all, and the folder is removed. `error` is why nothing is: its versions
    could not be read, or somebody writes there.
    """

    table: Table
    files: Sequence[StoredFile] = ()
    entries: Sequence[StoredFile] = ()
    error: str | None = None
    is_whole: bool = False

    @property
    def size(self) -> int:
        """Bytes of all that is removed."""
        return sum(file.size for file in (*self.files, *self.entries))

    def as_json(self) -> dict[str, Any]:
        """Return what is removed, by path."""
        return {
            "table": self.table.path,
            "files": [file.path for file in self.files],
            "log_entries": [file.path for file in self.entries],
            "bytes": self.size,
            "folder": self.is_whole,
            "error": self.error,
        }

    def line(self) -> str:
        """Return it as one line."""
        folder = self.table.path
        if self.error:
            return f"{folder}: nothing removed: {self.error}"
        if self.is_whole:
            return f"{folder}: the whole unreferenced folder; {in_bytes(self.size)}"
        return (
            f"{folder}: {counted(len(self.files), 'unreferenced file')},"
            f" {counted(len(self.entries), 'log entry', 'log entries')}; {in_bytes(self.size)}"
        )


@dataclass(frozen=True)
class Plan:
    """The snapshots that are kept and removed, by number, and what is removed of each table.

    `pinned` is {number: why} of those that are kept longer than by their age; `unknown` is why
    that could not be found out, or their rows could not be removed: then no snapshot is removed.
    """

    kept: Sequence[int]
    dropped: Sequence[int]
    pinned: Mapping[int, str] = field(default_factory=dict)
    unknown: str | None = None
    tables: Sequence[TablePlan] = ()

    @property
    def errors(self) -> list[str]:
        """What could not be determined."""
        lines = (table.error and table.line() for table in self.tables)
        return [*filter(None, (self.unknown, *lines))]

    def as_json(self) -> dict[str, Any]:
        """Return all that is removed, and why what is older is kept."""
        return {
            "snapshots": {
                "kept": len(self.kept),
                "dropped": list(self.dropped),
                "pinned": {str(number): why for number, why in sorted(self.pinned.items())},
                "unknown": self.unknown,
            },
            "tables": [table.as_json() for table in self.tables],
            "bytes": self.counts()["bytes"],
        }

    def counts(self) -> dict[str, int]:
        """Return how much is removed: snapshots, files, entries of logs, bytes."""
        return {
            "snapshots": len(self.dropped),
            "files": sum(len(table.files) for table in self.tables),
            "log_entries": sum(len(table.entries) for table in self.tables),
            "bytes": sum(table.size for table in self.tables),
        }

    def lines(self, days: int) -> list[str]:
        """Return it as lines; `days` is SHARDPOST_SNAPSHOT_DAYS."""
        kept = counted(len(self.kept), "is", "are")
        lines = [f"snapshots: {kept} kept ({RETENTION_IN_WORDS}, for {counted(days, 'day')})"]
        if self.unknown:
            lines.append(f"snapshots: none removed: {self.unknown}")
        elif self.dropped:
            count, numbers = len(self.dropped), ranges_text(self.dropped)
            lines.append(f"snapshots: {count} no longer kept: {numbers}")
        lines += [f"snapshot {number}: {why}" for number, why in sorted(self.pinned.items())]
        lines += [
            table.line() for table in self.tables if table.files or table.entries or table.error
        ]
        counts = self.counts()
        size = in_bytes(counts["bytes"]) if any(counts.values()) else "nothing to remove"
        return [*lines, f"files: {size}"]
