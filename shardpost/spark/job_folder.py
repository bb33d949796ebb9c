"""A folder for the temporary files of a job, removed in the end, however the job ends.

The process that creates it removes it. If that one was killed, the next job on this machine removes
it, once no process uses it any more.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

PREFIX = "shardpost-"
_LOCK = "in-use"


@contextmanager
def job_folder() -> Iterator[Path]:
    """Give a new folder; a process uses it if its `TMPDIR` names it."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    # It gets the name that other jobs look for only when it is locked.
    hidden = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
    with (hidden / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = hidden.rename(hidden.with_name(hidden.name[1:]))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    folders = [path for path in parent.glob(f"{PREFIX}*") if os.access(path / _LOCK, os.W_OK)]
    if not folders:
        return
    in_use = _folders_in_use()
    for folder in folders:
        if str(folder) not in in_use:
            _remove_unlocked(folder)


def _folders_in_use() -> set[str]:
    """Return `TMPDIR` of all processes whose environment this one may read."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            found.add(process.environ().get("TMPDIR", ""))
    return found


def _remove_unlocked(folder: Path) -> None:
    """Remove a folder unless it is locked."""
    with suppress(OSError), (folder / _LOCK).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
