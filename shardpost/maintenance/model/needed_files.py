"""Which data files and which log entries of a table no kept version needs.

A version is read from the newest checkpoint at or before it, and the commits since; Delta writes a
checkpoint every tenth version. Everything from the newest checkpoint on is kept, since a reader may
have opened it.

A new file is in no version yet. So a file that is in no version is removed only if no run can be
about to commit it: a run writes files before it commits them, and one run at a time writes a table.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable
from datetime import datetime

from shardpost.delta.table import LOG_FOLDER, StoredFile

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
    return path in needed or _checked(path) in needed


def _checked(path: str) -> str:
    """Return the file that a checksum of Spark's is of, or else the path itself."""
    checksum = _CHECKSUM.fullmatch(path)
    return f"{checksum[1] or ''}{checksum[2]}" if checksum else path


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
        """Go on by the commit of the next version."""
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
