"""What is in the folder of a table, and removing files from it: on a disk or an object store."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from pyarrow import fs

from shardpost.delta.query import path_of
from shardpost.delta.stored_file import StoredFile
from shardpost.delta.table import Table
from shardpost.settings import Settings


def stored_files(settings: Settings, table: Table) -> list[StoredFile]:
    """Return all files in the folder of a table, its log too; [] if there is no such folder.

    What is removed while it looks is left out.
    """
    system, root = fs.FileSystem.from_uri(path_of(settings, table))
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    return [
        StoredFile(info.path.removeprefix(root).lstrip("/"), info.size, _at(info))
        for info in system.get_file_info(selector)
        if info.size is not None  # a file: `type` and `mtime` take longer than all the rest
    ]


def _at(info: fs.FileInfo) -> datetime:
    seconds, rest = divmod(info.mtime_ns, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)


def remove(settings: Settings, table: Table, paths: Iterable[str]) -> None:
    """Remove files, and folders that this leaves empty; those that are gone are passed over."""
    root = path_of(settings, table)
    system, within = fs.FileSystem.from_uri(root)
    folders: set[str] = set()
    for path in paths:
        with suppress(FileNotFoundError):
            system.delete_file(f"{within}/{path}")
        folders.update(str(parent) for parent in PurePosixPath(path).parents)
    if isinstance(system, fs.LocalFileSystem):  # in object stores there are no folders
        for folder in sorted(folders - {"."}, key=len, reverse=True):
            with suppress(OSError):  # not empty
                (Path(within) / folder).rmdir()


def exists(settings: Settings, table: Table) -> bool:
    """Tell whether there is anything in the folder of a table."""
    system, root = fs.FileSystem.from_uri(path_of(settings, table))
    return bool(system.get_file_info(fs.FileSelector(root, allow_not_found=True)))


def remove_all(settings: Settings, table: Table) -> None:
    """Remove the folder of a table: its files, then its log."""
    remove(settings, table, sorted(file.path for file in stored_files(settings, table)))
    system, root = fs.FileSystem.from_uri(path_of(settings, table))
    with suppress(FileNotFoundError):
        system.delete_dir(root)
