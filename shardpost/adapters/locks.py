"""A lock that a second run of the same thing finds: flock on a file that names its holder."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from shardpost.errors import ShardpostError

POLL_SECONDS = 0.2


class LockedError(ShardpostError):
    """Somebody else holds the lock; the text says who, since when."""


@contextmanager
def exclusive(
    path: Path, what: str, *, wait: float = 0, give_up: Callable[[], bool] = lambda: False
) -> Iterator[bool]:
    """Hold the lock; yields True, or False if `give_up` came true while waiting for it.

    The kernel frees the lock when its holder dies, however it dies. Raises LockedError after `wait` seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        held = _acquire(file.fileno(), path, what, wait, give_up)
        if held:
            file.truncate(0)
            file.write(json.dumps({"pid": os.getpid(), "since": datetime.now(UTC).isoformat()}))
            file.flush()
        yield held


def _acquire(fd: int, path: Path, what: str, wait: float, give_up: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if give_up():
                return False
            if time.monotonic() >= deadline:
                raise LockedError(f"{what} is already running {_holder(path)}: wait for it") from None
            time.sleep(POLL_SECONDS)
        else:
            return True


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
    except (OSError, ValueError):
        return f"(it holds {path})"
    return f"(pid {holder['pid']}, since {holder['since']}; it holds {path})"
