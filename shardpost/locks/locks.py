"""Locks between runs of the same kind, which name their holder.

Where the tables are in a folder, it is flock on a file: the kernel frees it when its holder dies.
Where they are on an object store, it is a claim there, and holds between machines (claims.py).
"""

import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from shardpost.delta.object_store import Objects
from shardpost.errors import ShardpostError
from shardpost.locks import claims
from shardpost.locks.claims import LOOKED_AT, RENEWED, Claim, Version, VersionedText
from shardpost.locks.shared_files import Files

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
FOLDER = "_locks"
READ_AT_ONCE = 16
_ADVICE = ": wait for it"
# A claim of which three renewals are missing is not kept by its holder.
RENEWED_WITHIN = 3 * RENEWED


class LockedError(ShardpostError):
    """Somebody else holds the lock; the text says who, since when, and what to do."""

    @property
    def holder(self) -> str:
        """The text without what to do, for somebody who is waiting already."""
        return str(self).removesuffix(_ADVICE)


@contextmanager
def postponing(name: object, postponed: dict[str, str]) -> Iterator[None]:
    """Store, under that name, why the work stopped (its lock is held, or it failed); continue."""
    try:
        yield
    except LockedError as error:
        postponed[str(name)] = error.holder
    except ShardpostError as error:
        postponed[str(name)] = str(error)


def path_of(files: Files, name: str) -> Path:
    """Return the file of the lock of that name, on this machine."""
    return files.home / "locks" / name


def exclusive(
    files: Files, name: str, what: str, *, wait: float = 0
) -> AbstractContextManager[None]:
    """Hold the lock with that name; LockedError if another has it after `wait` seconds.

    `what` says what is running: in the error, and in the log when a wait begins. A lock is free
    when its holder dies, however it dies: at once, or on a store at the end of its lease, unless it
    died on this machine. There, to see that a holder is alive may take longer than `wait`.
    """
    if files.tables.is_on_store:
        return _claimed(files, name, what, wait=wait)
    return exclusive_here(files, name, what, wait=wait)


def after_running(files: Files, job: str) -> AbstractContextManager[None]:
    """Hold the lock of a job, after the run that has it, if any: `lock_wait` at most."""
    return exclusive(files, job, job, wait=files.lock_wait)


@contextmanager
def all_exclusive(files: Files, locks: Mapping[str, str]) -> Iterator[None]:
    """Hold several locks, {name: what}, as `exclusive`; in their order, so that of two one wins.

    All are looked at before, so that those of one dead process are free after one lease.
    """
    newest = _newest(files.tables.objects(), "") if files.tables.is_on_store else {}
    seen_at = claims.boot_clock()
    with ExitStack() as held:
        for name, what in locks.items():
            if name in newest:
                seen = Version(int(newest[name].rpartition("/")[2]))
                held.enter_context(_claimed(files, name, what, seen=seen, seen_at=seen_at))
            else:
                held.enter_context(exclusive(files, name, what))
        yield


@contextmanager
def _claimed(
    files: Files,
    name: str,
    what: str,
    *,
    wait: float = 0,
    seen: Version | None = None,
    seen_at: float = 0,
) -> Iterator[None]:
    holder = claims.this_process(what, datetime.now(UTC), claims.LEASE_SECONDS)
    place = f"{files.tables.root}/{FOLDER}/{name}"
    claim = Claim(_text(files.tables.objects(), name), place, holder, seen, seen_at)
    patience = _Patience(what, wait)
    while not claim.take():
        who = f"({claim.other}; it holds {place})"
        patience.wait(who, LOOKED_AT * claims.LEASE_SECONDS, may_refuse=claim.is_renewed)
    threading.Thread(target=claim.keep, name=f"claim {name}", daemon=True).start()
    files.tables.claims.append(claim)
    try:
        yield
    finally:
        files.tables.claims.remove(claim)
        claim.release()


def _text(objects: Objects, name: str) -> VersionedText:
    return VersionedText(objects, f"{FOLDER}/{name}")


@contextmanager
def exclusive_here(files: Files, name: str, what: str, *, wait: float = 0) -> Iterator[None]:
    """Hold a lock as `exclusive` does, of this home and machine, wherever the tables are."""
    files.folder("locks")
    path, patience = path_of(files, name), _Patience(what, wait)
    with path.open("a+") as file:
        while not _is_taken(file.fileno()):
            known = _holder_in(path)
            who = f"pid {known[0]}, since {known[1].isoformat()}; " if known else ""
            patience.wait(f"({who}it holds {path})", POLL_SECONDS)
        text = json.dumps({"pid": os.getpid(), "since": datetime.now(UTC).isoformat()})
        with suppress(OSError):  # the disk may be full: that text is not the lock
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), text.encode())
        yield


class _Patience:
    """A wait for the holder of a lock, logged once, with its deadline."""

    def __init__(self, what: str, wait: float) -> None:
        self._what, self._wait, self._is_said = what, wait, False
        self._deadline = time.monotonic() + wait

    def wait(self, who: str, seconds: float, *, may_refuse: bool = True) -> None:
        """Wait a moment; LockedError after the deadline, as soon as that may be."""
        running = f"{self._what} is already running {who}"
        if may_refuse and time.monotonic() >= self._deadline:
            raise LockedError(f"{running}{_ADVICE}")
        if not self._is_said:
            most = self._wait if may_refuse else max(self._wait, claims.LEASE_SECONDS)
            log.info("%s: waiting for it, up to %g s", running, most)
            self._is_said = True
        time.sleep(seconds)


def _is_taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(frozen=True)
class Held:
    """A lock that is held, and by whom.

    `pid` is one of this machine if `host` is None. `is_renewed` is False for a claim that its
    holder does not renew: it is stopped, cut off from the store, or gone.
    """

    name: str
    pid: int
    since: datetime
    host: str | None = None
    is_renewed: bool = True


def holders(files: Files, prefix: str = "", *, seconds: float | None = None) -> list[Held]:
    """Return the locks of names with that prefix that are held, and by whom; none is tried.

    On a store that takes until all are renewed, a few seconds; of those that are not, half a lease
    or that many.
    """
    if files.tables.is_on_store:
        return [*_claims(files, prefix, seconds or RENEWED_WITHIN * claims.LEASE_SECONDS)]
    # By the kernel's own list: to try a lock would make a run that begins in that moment refuse.
    listed = Path("/proc/locks").read_text().splitlines()
    locks = (line.split() for line in listed if "->" not in line)  # which would wait
    flocks = (fields for fields in locks if fields[1] == "FLOCK")
    pids = {int(fields[5].rpartition(":")[2]): int(fields[4]) for fields in flocks}
    found = []
    for path in sorted(path_of(files, "").glob(f"{prefix}*")):
        pid, named = pids.get(path.stat().st_ino), _holder_in(path)
        if named and named[0] == pid:  # inodes of other file systems have its number
            found.append(Held(path.name, *named))
    return found


def _holder_in(path: Path) -> tuple[int, datetime] | None:
    """Return the holder that the file of a lock names, and since when; None if it names none."""
    try:
        form = json.loads(path.read_text())
        return int(form["pid"]), datetime.fromisoformat(form["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _claims(files: Files, prefix: str, seconds: float) -> Iterator[Held]:
    objects = files.tables.objects()
    first = _newest(objects, prefix)
    with ThreadPoolExecutor(READ_AT_ONCE) as pool:
        texts = pool.map(lambda name: _text(objects, name).read(), first)
        read = zip(first, map(claims.holder_of, texts), strict=True)
        held = {name: holder for name, holder in read if holder and not holder.is_gone}
    deadline = time.monotonic() + seconds
    now = first
    while any(now.get(name) == first[name] for name in held) and time.monotonic() < deadline:
        time.sleep(LOOKED_AT * claims.LEASE_SECONDS)
        now = _newest(objects, prefix)
    for name, one in held.items():
        host = None if one.is_here else one.host
        since = datetime.fromisoformat(one.since)
        yield Held(name, one.pid, since, host, now.get(name) != first[name])


def _newest(objects: Objects, prefix: str) -> dict[str, str]:
    """Return {lock: the name of its newest version}."""
    names = (name.removeprefix(f"{FOLDER}/") for name in objects.names(FOLDER))
    return {name.rpartition("/")[0]: name for name in names if name.startswith(prefix)}
