"""The files of `audiences`: a folder for each freeze, named for its week.

Some are of no frozen week: what killed freezes left, and killed erasures of old weeks. Nobody reads
them, and each has names and addresses as they were then. Only under the lock of freezes are they
not those of a running freeze.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from shardpost.delta import table_log
from shardpost.delta.query import exists, path_of
from shardpost.logs import step
from shardpost.settings import Settings
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.week_tables import AUDIENCES

_FOLDER = re.compile(r"([0-9]{4}-W[0-9]{2})-")


@dataclass(frozen=True)
class AudienceFolder:
    """One folder of the table, with files of one week; `path` is that of its file system."""

    week: str
    path: str
    files: int
    bytes: int


def is_of_week(name: str, week: object) -> bool:
    """Tell whether a file, by its path within the table, has rows of that week; and of no other."""
    return name.startswith(f"{week}-")


def week_of(name: str) -> str | None:
    """Return the week of a file or folder, by its path within the table; None of another's."""
    found = _FOLDER.match(name)
    return found[1] if found else None


def audience_folders(settings: Settings) -> Iterator[AudienceFolder]:
    """Yield all folders that are there, also those that no version of the table names."""
    system, root = located(settings)
    for folder in system.get_file_info(fs.FileSelector(root, allow_not_found=True)):
        week = week_of(folder.base_name)
        if week is None or folder.type != fs.FileType.Directory:
            continue
        inside = system.get_file_info(fs.FileSelector(folder.path, recursive=True))
        files = [info for info in inside if info.type == fs.FileType.File]
        yield AudienceFolder(week, folder.path, len(files), sum(info.size for info in files))


def remove_folders(settings: Settings, folder: AudienceFolder) -> None:
    """Remove a folder from the disk."""
    system, _ = located(settings)
    system.delete_dir(folder.path)


def located(settings: Settings) -> tuple[fs.FileSystem, str]:
    """Return the file system of the table, and its folder there."""
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path_of(settings, AUDIENCES))
    return found


def files_have_client(system: fs.FileSystem, path: str, client: str) -> bool:
    """Tell whether a file has a client, by its path in its file system."""
    with system.open_input_file(path) as file:
        rows = pq.ParquetFile(file).read(["client"], use_threads=False)
    return bool(pc.any(pc.equal(rows.column("client"), client)).as_py())


def find_unfrozen(settings: Settings) -> list[AudienceFolder]:
    """Return their folders."""
    weeks = FrozenWeeks(settings).list_all()
    frozen = {one.week for one in weeks if one.audience_erased_at is None}
    return [one for one in audience_folders(settings) if one.week not in frozen]


def weeks_of_unfrozen(
    settings: Settings, folders: Collection[AudienceFolder], client: str
) -> set[str]:
    """Return the weeks of those folders that have the client."""
    return {one.week for one in folders if _has(settings, one, client)}


def remove_unfrozen(settings: Settings, folders: Collection[AudienceFolder]) -> None:
    """Remove folders from the table, and then from the disk."""
    if not folders or not exists(settings, AUDIENCES):
        return
    step("commit without audiences that were never frozen")
    weeks = {one.week for one in folders}
    version = FrozenWeeks(settings).audience_version()
    names = table_log.sizes(settings, AUDIENCES, version)
    named = [name for name in names if week_of(name) in weeks]
    if named:
        table_log.commit(settings, AUDIENCES, version, (), named)
    step("remove audiences that were never frozen")
    for folder in folders:
        remove_folders(settings, folder)


def _has(settings: Settings, folder: AudienceFolder, client: str) -> bool:
    system, _ = located(settings)
    found = system.get_file_info(fs.FileSelector(folder.path, recursive=True))
    paths = (info.path for info in found if info.path.endswith(".parquet"))
    return any(files_have_client(system, path, client) for path in paths)
