"""The files of `audiences`: a folder for each freeze, named for its week.

Some are of no frozen week: what killed freezes left, and killed erasures of old weeks. Nobody reads
them, and each has names and addresses as they were then. Only under the lock of freezes are they
not those of a running freeze.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction
from pyarrow import fs

from shardpost.delta import storage, table_log
from shardpost.delta.object_store import Tables
from shardpost.weekly_email.model.week_tables import AUDIENCES

# Versions are kept for good, one a week, since the row of each week names its own. The files of old
# weeks go by `week_retention.py`, and never by Delta's own clean-up.
FOR_GOOD_DAYS = 36_500
_FOLDER = re.compile(r"([0-9]{4}-W[0-9]{2})-")


def is_of_week(name: str, week: object) -> bool:
    """Tell whether a file, by its path within the table, has rows of that week; and of no other."""
    return name.startswith(f"{week}-")


@dataclass(frozen=True)
class AudienceFolder:
    """One folder of the table, with files of one week: its path, and {path within it: bytes}."""

    week: str
    name: str
    files: dict[str, int]

    @property
    def parquet(self) -> list[str]:
        """The Parquet files, by their paths within the table."""
        return [f"{self.name}/{path}" for path in self.files if path.endswith(".parquet")]


class AudienceFiles:
    """The table `audiences` as files: those that its versions name, and those on the disk."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._system, self._root = storage.folder(tables, AUDIENCES)

    def create(self) -> None:
        """Create the table unless it is there; add columns that an earlier release did not have."""
        table_log.opened(self._tables, AUDIENCES, FOR_GOOD_DAYS)

    def version(self) -> int:
        """Return the newest version."""
        return storage.opened(self._tables, AUDIENCES).version()

    def names(self, version: int | None = None) -> list[str]:
        """Return the files that a version names, by their paths within the table; None: newest."""
        return list(table_log.sizes(self._tables, AUDIENCES, version))

    def replace(self, is_removed: Callable[[str], bool], added: Sequence[AddAction] = ()) -> int:
        """Write a version with these files in place of those, if any; return the newest version."""
        version = self.version()
        names = table_log.sizes(self._tables, AUDIENCES, version)
        removed = [name for name in names if is_removed(name)]
        if not added and not removed:
            return version
        return table_log.commit(self._tables, AUDIENCES, version, added, removed)

    def remove_weeks(self, weeks: Collection[str]) -> None:
        """Write a version without the files of these weeks."""
        self.replace(lambda name: _week_of(name) in weeks)

    def folders(self) -> list[AudienceFolder]:
        """Return all folders that are there, also those that no version of the table names."""
        infos = self._system.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
        folders = ((_week_of(info.base_name), info) for info in infos)
        return [
            AudienceFolder(week, info.base_name, self._files(info.path))
            for week, info in folders
            if week is not None and info.type == fs.FileType.Directory
        ]

    def has_client(self, name: str, client: str) -> bool:
        """Tell whether a file has a client."""
        with self._system.open_input_file(f"{self._root}/{name}") as file:
            rows = pq.ParquetFile(file).read(["client"], use_threads=False)
        return bool(pc.any(pc.equal(rows.column("client"), client)).as_py())

    def delete(self, name: str) -> None:
        """Delete a file from the disk."""
        storage.delete(self._tables, AUDIENCES, [name])

    def delete_folder(self, folder: AudienceFolder) -> None:
        """Delete a folder from the disk."""
        storage.delete_folder(self._tables, AUDIENCES, folder.name)

    def _files(self, folder: str) -> dict[str, int]:
        infos = self._system.get_file_info(fs.FileSelector(folder, recursive=True))
        return {
            info.path.removeprefix(f"{folder}/"): info.size
            for info in infos
            if info.type == fs.FileType.File
        }


def _week_of(name: str) -> str | None:
    """Return the week of a file or folder, by its path within the table; None of another's."""
    match = _FOLDER.match(name)
    return match[1] if match else None
