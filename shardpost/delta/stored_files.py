"""The files in the folders of tables, on this machine or on an object store, committed or not.

A store has no folders and no renames, and each request takes some milliseconds: there, files are
opened side by side and deleted together.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from shardpost.delta import object_store
from shardpost.delta.storage import Tables, path_of
from shardpost.delta.table import LOG_FOLDER, StoredFile, Table

if TYPE_CHECKING:
    from pyarrow import fs

# So many files are opened at once.
AT_ONCE = 16
# As many as a store deletes by one request.
DELETED_AT_ONCE = 1000

T = TypeVar("T")
R = TypeVar("R")


def folder(tables: Tables, table: Table, name: str = "") -> "tuple[fs.FileSystem, str]":
    """Return pyarrow's file system, and the path in it of a table, or of a folder of the table."""
    path = "/".join(filter(None, (path_of(tables, table), name)))
    if (where := tables.answering()) is None:
        from pyarrow import fs  # who only asks does without

        return fs.LocalFileSystem(), path
    return tables.once(_file_system, where), path.removeprefix("s3://")


def _file_system(where: object_store.Address) -> "fs.FileSystem":
    from pyarrow import fs

    scheme, _, host = (where.endpoint or "").rstrip("/").rpartition("://")
    return fs.S3FileSystem(
        access_key=where.key_id,
        secret_key=where.secret,
        session_token=where.token,
        region=where.region,
        scheme=scheme or None,
        endpoint_override=host or None,
        connect_timeout=object_store.CONNECT_SECONDS,
        request_timeout=object_store.REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=object_store.RETRIES),
        allow_delayed_open=True,  # a small file is one request instead of three
    )


def make_folder_of(tables: Tables, table: Table, path: str) -> None:
    """Make the folder of a file of a table, where there are folders."""
    if not tables.is_on_store:
        Path(path_of(tables, table), path).parent.mkdir(parents=True, exist_ok=True)


def delete(tables: Tables, table: Table, paths: Iterable[str]) -> None:
    """Delete files of a table; missing ones are skipped.

    LostLockError, before each request, if a lock of this process was taken over.
    """
    if tables.is_on_store:
        _delete(tables, _objects(tables, table), [*paths])
    else:
        for path in paths:
            Path(path_of(tables, table), path).unlink(missing_ok=True)


def delete_folder(tables: Tables, table: Table, name: str = "") -> None:
    """Delete a table's folder, or a folder in it, with all its content."""
    if tables.is_on_store:
        found = _objects(tables, table, name)
        _delete(tables, found, found.names())
    else:
        system, path = folder(tables, table, name)
        with suppress(FileNotFoundError):
            system.delete_dir(path)


def folder_names(tables: Tables, table: Table) -> list[str]:
    """Return the names of the folders in a table's folder, sorted; [] if there is none."""
    from pyarrow import fs

    _, infos = listing(tables, table, recursive=False)
    return sorted(info.base_name for info in infos if info.type == fs.FileType.Directory)


def _delete(tables: Tables, objects: object_store.Objects, names: list[str]) -> None:
    """Delete objects: no version of a table keeps who has lost its lock from that."""
    for first in range(0, len(names), DELETED_AT_ONCE):
        tables.require_held()
        objects.delete(names[first : first + DELETED_AT_ONCE])


def _objects(tables: Tables, table: Table, *folders: str) -> object_store.Objects:
    return tables.objects(table.path, *filter(None, folders))


def side_by_side(work: Callable[[T], R], each: Iterable[T]) -> list[R]:
    """Return the results of `work`, in order; several run in parallel."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [*pool.map(work, each)]


def listing(
    tables: Tables, table: Table, name: str = "", *, recursive: bool = True
) -> "tuple[str, list[fs.FileInfo]]":
    """Return the path of a table, or of a folder of it, and what is there; [] if it is not."""
    from pyarrow import fs

    system, root = folder(tables, table, name)
    selector = fs.FileSelector(root, recursive=recursive, allow_not_found=True)
    return root, system.get_file_info(selector)


def stored_files(tables: Tables, table: Table) -> list[StoredFile]:
    """Return all files in the folder of a table, its log too; [] if there is no such folder.

    Files that are removed meanwhile are left out.
    """
    root, listed = listing(tables, table)
    return [
        StoredFile(info.path.removeprefix(root).lstrip("/"), info.size, _time(info.mtime_ns))
        for info in listed
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
    """Return the files in the folder of a table, without its log and those to leave out.

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
    for folder, folders, names in os.walk(root):
        if folder == root and LOG_FOLDER in folders:
            folders.remove(LOG_FOLDER)
        below = folder.removeprefix(root).lstrip("/")
        yield from (f"{below}/{name}" if below else name for name in names)


def _time(nanoseconds: int) -> datetime:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)


def remove(tables: Tables, table: Table, paths: Iterable[str]) -> None:
    """Remove files, and folders that this leaves empty; missing ones are skipped."""
    gone = [*paths]
    delete(tables, table, gone)
    if tables.is_on_store:
        return
    folders = {str(parent) for path in gone for parent in PurePosixPath(path).parents} - {"."}
    for folder in sorted(folders, key=len, reverse=True):
        with suppress(OSError):  # not empty
            Path(path_of(tables, table), folder).rmdir()


def has_files(tables: Tables, table: Table) -> bool:
    """Tell whether there is anything in the folder of a table."""
    return bool(listing(tables, table, recursive=False)[1])


def remove_all(tables: Tables, table: Table) -> None:
    """Remove the folder of a table: its files, then its log."""
    files = [file.path for file in stored_files(tables, table)]
    remove(tables, table, [path for path in files if not path.startswith(f"{LOG_FOLDER}/")])
    delete_folder(tables, table)
