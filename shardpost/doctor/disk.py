"""The disks of SHARDPOST_HOME and of the tables: space, and whether they can be written."""

import os
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from shardpost.doctor.finding import Finding, error, ok, unknown, warning
from shardpost.embedded.stack import FREE_BYTES
from shardpost.settings import Settings

GIB = 1024**3
# `up` refuses less than FREE_BYTES; a compaction writes whole new versions of some files.
ENOUGH_BYTES = 5 * GIB


def check(settings: Settings, _now: datetime) -> Iterator[Finding]:
    """Check both folders, and the one of the tables only where it is another disk."""
    home = _existing(settings.home)
    yield check_folder("home", settings.home, shutil.disk_usage(home).free)
    if "://" in settings.tables_root:
        yield unknown(
            "tables", f"{settings.tables_root}: the space of an object store is not known"
        )
        return
    tables = Path(settings.tables_root)
    if settings.tables is not None:
        yield check_folder("tables", tables, shutil.disk_usage(_existing(tables)).free)


def check_folder(name: str, folder: Path, free: int) -> Finding:
    """Check one folder, on a disk with so many free bytes; `name` is that of its setting."""
    setting, check_name = f"SHARDPOST_{name.upper()}", f"disk of {name}"
    found = f"{free / GIB:.1f} GiB free at {folder}"
    existing = _existing(folder)
    if not os.access(existing, os.W_OK | os.X_OK):
        cure = f"chown {os.getuid()} {existing}, or set {setting} to another folder"
        return error(check_name, f"{existing} cannot be written", "a folder of this user", cure)
    cure = f"free some space, or set {setting} to a folder on another disk"
    if free < FREE_BYTES:
        return error(check_name, found, f"at least {FREE_BYTES / GIB:g} GiB", cure)
    if free < ENOUGH_BYTES:
        return warning(check_name, found, f"at least {ENOUGH_BYTES / GIB:g} GiB", cure)
    return ok(check_name, found)


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(one for one in (folder, *folder.parents) if one.exists())
