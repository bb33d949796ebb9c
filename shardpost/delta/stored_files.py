"""What is in the folder of a table, and removing files from it."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from pyarrow import fs

from shardpost.delta import storage
from shardpost.delta.object_store import Tables
from shardpost.delta.storage import path_of
from shardpost.delta.table import LOG_FOLDER, StoredFile, Table


def stored_files(tables: Tables, table: Table) -> list[StoredFile]:
    """Return all files in the folder of a table, its log too; [] if there is no such folder.

    What is removed while it looks is left out.
    """
    system, root = storage.folder(tables, table)
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    return [
        StoredFile(info.path.removeprefix(root).lstrip("/"), info.size, _time(info.mtime_ns))
        for info in system.get_file_info(selector)
        if info.size is not None  # a file: `type` and `mtime` take longer than all the rest
    ]


def log_files(tables: Tables, table: Table) -> list[StoredFile]:
    """Return the files of the log of a table; [] if there is none."""
    log = f"{table.path}/{LOG_FOLDER}"
    found = stored_files(tables, replace(table, folder=log))
    return [replace(file, path=f"{LOG_FOLDER}/{file.path}") for file in found]


def data_files(
    tables: Tables, table: Table, is_left_out: Callable[[str], bool]
) -> list[StoredFile]:
    """Return the files in the folder of a table, but its log, without those that are left out.

    Of the latter, the disk is asked for nothing but the names.
    """
    if tables.is_on_store:
        files = stored_files(tables, table)
        data = (file for file in files if not file.path.startswith(f"{LOG_FOLDER}/"))
        return [file for file in data if not is_left_out(file.path)]
    root, found = path_of(tables, table), []
    for path in _names(root):
        if not is_left_out(path):
            with suppress(FileNotFoundError):
                status = Path(root, path).stat()
                found.append(StoredFile(path, status.st_size, _time(status.st_mtime_ns)))
    return found


def _names(root: str) -> Iterator[str]:
    """Yield the paths of all files below a folder, but those of its log."""
    folders = [""]
    while folders:
        folder = folders.pop()
        with suppress(FileNotFoundError), os.scandir(f"{root}/{folder}") as entries:
            for entry in entries:
                path = f"{folder}{entry.name}"
                if not entry.is_dir(follow_symlinks=False):
                    yield path
                elif path != LOG_FOLDER:
                    folders.append(f"{path}/")


def _time(nanoseconds: int) -> datetime:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)


def remove(tables: Tables, table: Table, paths: Iterable[str]) -> None:
    """Remove files, and folders that this leaves empty; those that are gone are passed over."""
    gone = [*paths]
    storage.delete(tables, table, gone)
    if tables.is_on_store:
        return
    folders = {str(parent) for path in gone for parent in PurePosixPath(path).parents} - {"."}
    for folder in sorted(folders, key=len, reverse=True):
        with suppress(OSError):  # not empty
            Path(path_of(tables, table), folder).rmdir()


def exists(tables: Tables, table: Table) -> bool:
    """Tell whether there is anything in the folder of a table."""
    system, root = storage.folder(tables, table)
    return bool(system.get_file_info(fs.FileSelector(root, allow_not_found=True)))


def remove_all(tables: Tables, table: Table) -> None:
    """Remove the folder of a table: its files, then its log."""
    files = [file.path for file in stored_files(tables, table)]
    remove(tables, table, [path for path in files if not path.startswith(f"{LOG_FOLDER}/")])
    storage.delete_folder(tables, table)
