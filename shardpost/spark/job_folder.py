"""A folder for the temporary files of a job, which is gone in the end, whatever ends the job.

It goes with who made it. Where that one was killed, it goes with the next job on this machine, once
no process works in it any more.
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
    """Give a new folder; a process works in it if `TMPDIR` names it."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    # Under its name nobody finds it without its lock.
    made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
    with (made / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = made.rename(made.with_name(made.name[1:]))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    there = [one for one in parent.glob(f"{PREFIX}*") if os.access(one / _LOCK, os.W_OK)]
    if not there:
        return
    used = _used()
    for folder in there:
        if str(folder) not in used:
            _remove(folder)


def _used() -> set[str]:
    """Return the folders for temporary files of all processes that we may look at."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            found.add(process.environ().get("TMPDIR", ""))
    return found


def _remove(folder: Path) -> None:
    """Remove a folder, unless it is locked."""
    with suppress(OSError), (folder / _LOCK).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
