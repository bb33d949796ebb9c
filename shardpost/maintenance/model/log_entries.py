"""Which entries of a table's log no kept version needs.

A version is read from the newest checkpoint at it or before it, and the commits since. Nothing is
written for that: Delta makes a checkpoint of every tenth version. Everything from the newest one on
stays, of which a reader can have known for a while.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from shardpost.delta.stored_file import LOG_FOLDER, StoredFile

LOG = f"{LOG_FOLDER}/"
_ENTRY = re.compile(LOG + r"(\d{20})\.(json|checkpoint\.parquet)")
_CHECKPOINT = "checkpoint.parquet"


def unneeded_entries(
    files: Iterable[StoredFile], kept: Collection[int], settled: datetime
) -> list[StoredFile]:
    """Return the commits and checkpoints that can go, of all files of a table, oldest first.

    `kept` are the versions to be read later, besides the newest one. A checkpoint that was written
    after `settled` may not have been seen by who is reading now.
    """
    entries = [
        (int(found[1]), found[2] == _CHECKPOINT, file)
        for file in files
        if (found := _ENTRY.fullmatch(file.path))
    ]
    checkpoints = sorted(version for version, is_checkpoint, _ in entries if is_checkpoint)
    known = [v for v, is_checkpoint, file in entries if is_checkpoint and file.at <= settled]
    if not known:
        return []
    newest = max(known)
    spans = [(_last(checkpoints, version), version) for version in kept if version < newest]
    needed = {version for first, last in spans for version in range(first, last + 1)}
    starts = {first for first, _ in spans}
    gone = [
        (version, file.path, file)
        for version, is_checkpoint, file in entries
        if version < newest and version not in (starts if is_checkpoint else needed)
    ]
    return [file for *_, file in sorted(gone)]


def _last(checkpoints: Sequence[int], version: int) -> int:
    """Return the newest checkpoint at a version or before it; 0 if it is read from the start.

    Of all checkpoints, ascending.
    """
    number = bisect_right(checkpoints, version)
    return checkpoints[number - 1] if number else 0


def paths_of_entries(files: Iterable[StoredFile]) -> tuple[dict[int, str], dict[int, str]]:
    """Return {version: path} of the commits, and of the checkpoints, of all files of a table."""
    commits: dict[int, str] = {}
    checkpoints: dict[int, str] = {}
    for file in files:
        if found := _ENTRY.fullmatch(file.path):
            of_kind = checkpoints if found[2] == _CHECKPOINT else commits
            of_kind[int(found[1])] = file.path
    return commits, checkpoints


def commits_since(files: Iterable[StoredFile], at: datetime) -> list[StoredFile]:
    """Return the commits of a table that were written at that time or later."""
    found = ((_ENTRY.fullmatch(file.path), file) for file in files)
    return [file for entry, file in found if entry and entry[2] != _CHECKPOINT and file.at >= at]
