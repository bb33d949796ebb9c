"""A lock that a second run of the same thing finds: flock on a file that names its holder."""

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from shardpost.errors import ShardpostError
from shardpost.settings import Settings

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
_ADVICE = ": wait for it"


class LockedError(ShardpostError):
    """Somebody else holds the lock; the text says who, since when, and what to do."""

    @property
    def holder(self) -> str:
        """The text without what to do, for somebody who is waiting already."""
        return str(self).removesuffix(_ADVICE)


@contextmanager
def postponing(name: object, postponed: dict[str, str]) -> Iterator[None]:
    """Put what stops the work under that name, and continue: its lock is held, or it failed."""
    try:
        yield
    except LockedError as error:
        postponed[str(name)] = error.holder
    except ShardpostError as error:
        postponed[str(name)] = str(error)


def path_of(settings: Settings, name: str) -> Path:
    """Return where the lock of that name is."""
    return settings.home / "locks" / name


@contextmanager
def exclusive(settings: Settings, name: str, what: str, *, wait: float = 0) -> Iterator[None]:
    """Hold the lock of that name; LockedError if somebody else still has it after `wait` seconds.

    `what` says what is running: in the error, and in the log when a wait begins. The kernel frees
    the lock when its holder dies, however it dies.
    """
    settings.folder("locks")
    path = path_of(settings, name)
    with path.open("a+") as file:
        _acquire(file.fileno(), path, what, wait)
        _say_who(file.fileno())
        yield


def after_running(settings: Settings, job: str) -> AbstractContextManager[None]:
    """Hold the lock of a job, after the run that has it, if any: `lock_wait` at most."""
    return exclusive(settings, job, job, wait=settings.lock_wait)


def _say_who(fd: int) -> None:
    """Write the holder into the file of its lock, if the disk has room: that is not the lock."""
    text = json.dumps({"pid": os.getpid(), "since": datetime.now(UTC).isoformat()})
    with suppress(OSError):
        os.ftruncate(fd, 0)
        os.write(fd, text.encode())


def holders(settings: Settings) -> Iterator[tuple[Path, int]]:
    """Yield the file of each lock that is held on this machine, and its holder's pid.

    By the kernel's own list: to try a lock would make a run that begins in that moment refuse.
    """
    held = _flocks(Path("/proc/locks").read_text())
    for path in sorted(path_of(settings, "").glob("*")):
        pid, named = held.get(path.stat().st_ino), holder_in(path)
        if named and named.pid == pid:  # inodes of other file systems have its number
            yield path, named.pid


def _flocks(text: str) -> dict[int, int]:
    """Return {inode: pid} of the flocks in /proc/locks; those that wait (->) are left out."""
    lines = (line.split() for line in text.splitlines() if "->" not in line)
    flocks = (fields for fields in lines if fields[1] == "FLOCK")
    return {int(fields[5].rpartition(":")[2]): int(fields[4]) for fields in flocks}


class Holder(NamedTuple):
    """Who holds a lock, and since when."""

    pid: int
    since: datetime


def holder_in(path: Path) -> Holder | None:
    """Return the holder that the file of a lock names; None if it names none."""
    try:
        form = json.loads(path.read_text())
        return Holder(form["pid"], datetime.fromisoformat(form["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _acquire(fd: int, path: Path, what: str, wait: float) -> None:
    deadline = time.monotonic() + wait
    is_said = False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            running = f"{what} is already running {_holder_text(path)}"
            if time.monotonic() >= deadline:
                raise LockedError(f"{running}{_ADVICE}") from None
            if not is_said:
                log.info("%s: waiting for it, up to %g s", running, wait)
                is_said = True
            time.sleep(POLL_SECONDS)
        else:
            return


def _holder_text(path: Path) -> str:
    known = holder_in(path)
    who = f"pid {known.pid}, since {known.since.isoformat()}; " if known else ""
    return f"({who}it holds {path})"
