"""Which data files of a table nothing needs any more.

A file that is written is in no version yet. So a file that is in none goes only if no run can be
about to commit it: a run writes files before their version is committed, and one run at a time
writes a table.
"""

import re
from collections.abc import Collection, Iterable
from datetime import datetime

from shardpost.delta.stored_file import StoredFile
from shardpost.maintenance.model.log_entries import LOG

# Each write has a folder (or a file) whose name begins with the version that it is to become.
_NUMBERED = re.compile(r"(\d{8,})-")
_CHECKSUM = re.compile(r"(.*/)?\.([^/]+)\.crc")


def below_version(
    files: Iterable[StoredFile], needed: Collection[str], committed: int
) -> list[StoredFile]:
    """Return what can go of a table under the commit point of a snapshot.

    That is what is in no `needed` path, and was written for `committed`, the version of the newest
    snapshot, or for an earlier one: a run that goes on writes for later ones.
    """
    return [
        file
        for file in _unneeded(files, needed)
        if (number := _NUMBERED.match(file.path)) and int(number[1]) <= committed
    ]


def before(
    files: Iterable[StoredFile], needed: Collection[str], written_before: datetime
) -> list[StoredFile]:
    """Return what can go of a table that is read at its newest version: what is that old."""
    return [file for file in _unneeded(files, needed) if file.at < written_before]


def _unneeded(files: Iterable[StoredFile], needed: Collection[str]) -> list[StoredFile]:
    data = (file for file in files if not file.path.startswith(LOG))
    return [file for file in data if not is_needed(file.path, needed)]


def is_needed(path: str, needed: Collection[str]) -> bool:
    """Tell whether a file, or the one that it is the checksum of, is in a `needed` path."""
    return path in needed or _checked(path) in needed


def _checked(path: str) -> str:
    """Return the file that a checksum of Spark's is of, or else the path itself."""
    found = _CHECKSUM.fullmatch(path)
    return f"{found[1] or ''}{found[2]}" if found else path
