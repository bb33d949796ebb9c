"""Locks that hold between machines: claims in the object store, next to the tables.

A claim is a versioned text that names its holder: a folder with an object for each version, named
by its number, of which the newest counts. The next one is put under a name that must not be there
yet (`If-None-Match: *`), so of several who have read the same version one writes the next: a
compare-and-set from the one condition that all stores keep to (`If-Match` let several win).

Its holder writes the next version every few seconds; who finds one that stays the same for the
length of its lease writes the next one as its own. No clock is compared with another machine's: a
lease is measured by who waits for it to end, from when it saw the version, and by its holder from
before it wrote it, each on a clock that also counts while the process or the machine is suspended.

A claim that could not be renewed is asked about before it is relied on: while nobody has taken it
over, its holder may renew it late and go on. The fencing number of a claim is the number of its
first version, so it only grows, and a claim that is released keeps it.
"""

import json
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime

from shardpost.delta.object_store import Objects
from shardpost.errors import ShardpostError
from shardpost.locks.process_identity import ProcessIdentity

LEASE_SECONDS = 30.0
# Of a lease: how often it is renewed; how old a renewal may be that is relied on (what is done then
# has the rest of it to end); how often who waits for it looks.
RENEWED, RELIED_ON, LOOKED_AT = 1 / 6, 2 / 3, 1 / 30
# A store that takes longer than a lease for each renewal is of no use.
MOST_RENEWALS = 3
# A version that is listed may be gone when it is read: another one was written meanwhile.
MOST_READS = 50

log = logging.getLogger(__name__)


class LostLockError(ShardpostError):
    """Another run has taken over the lock of this one, which must commit nothing more."""


def boot_clock() -> float:
    """Return the seconds since this machine started, those while it was suspended among them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Version:
    """A text and its number; 0 is the number before the first one."""

    number: int
    text: str | None = None


class VersionedText:
    """The text in one folder of the store."""

    def __init__(self, objects: Objects, folder: str) -> None:
        self._objects, self._folder = objects, folder

    def read(self) -> Version:
        """Return the newest version."""
        for _ in range(MOST_READS):
            if not (number := max(self._numbers(), default=0)):
                return Version(0)
            if found := self._objects.get(self._name(number)):
                return Version(number, found.decode())
        raise ShardpostError(f"{self._folder}: it changes faster than it can be read: try again")

    def replace(self, version: Version, text: str) -> Version | None:
        """Write the next version and return it; None if another writer was first.

        Also if others have written more since. If two write the same text, both may get it.
        """
        made = Version(version.number + 1, text)
        if not self._objects.put_if_absent(self._name(made.number), text.encode()):
            return None
        numbers = self._numbers()
        # Whoever has read an old version may write the one after it a second time: it was removed.
        if made.number != max(numbers, default=0):
            return None
        if version.number and version.number not in numbers:  # the whole text was
            self._objects.delete([self._name(made.number)])
            return None
        with suppress(ShardpostError):  # the next writer removes them
            self._objects.delete([self._name(one) for one in numbers if one < made.number])
        return made

    def _numbers(self) -> list[int]:
        names = (name.rpartition("/")[2] for name in self._objects.names(self._folder))
        return [int(name) for name in names if name.isdecimal()]

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:020}"


@dataclass(frozen=True, kw_only=True)
class Holder(ProcessIdentity):
    """The holder of a claim, as stored; `fencing` is 0 until the first version is written.

    `since` is by the holder's clock, for people. `attempt` is another one for each attempt to write
    it: one that is made again is not taken for the one before, whose answer was lost.
    """

    what: str
    host: str
    since: str
    id: str
    lease: float = LEASE_SECONDS
    fencing: int = 0
    is_free: bool = False
    attempt: str = ""

    def __str__(self) -> str:
        since = f"{datetime.fromisoformat(self.since):%Y-%m-%d %H:%M:%S} UTC"
        return f"host {self.host}, pid {self.pid}, since {since}, fencing number {self.fencing}"


def this_process(what: str, now: datetime, lease: float) -> Holder:
    """Return this process as the holder of a claim; each claim is another one's."""
    since, own = now.isoformat(), asdict(ProcessIdentity.own())
    id_ = uuid.uuid4().hex
    return Holder(**own, what=what, host=socket.gethostname(), since=since, id=id_, lease=lease)


def holder_of(version: Version) -> Holder | None:
    """Return who has a claim; None if it is free, or was never claimed."""
    if version.text is None:
        return None
    found = Holder(**json.loads(version.text))
    return None if found.is_free else found


def form(holder: Holder) -> str:
    """Return the text of a version of a claim; each is another one."""
    return json.dumps(asdict(replace(holder, attempt=uuid.uuid4().hex)))


@dataclass(eq=False)
class Claim:
    """A claim that this process wants, and has once `take` says so; `place` is its URL.

    `version` is the newest one that it knows of, since `seen_at`: until it has the claim, when that
    was first seen; then, when it was written. Any thread may ask a claim that is held.
    """

    text: VersionedText
    place: str
    holder: Holder
    version: Version | None = None
    seen_at: float = 0.0
    clock: Callable[[], float] = boot_clock
    # Who has it instead; whether that one was seen to be alive; that it was taken over.
    other: Holder | None = None
    is_renewed: bool = False
    lost: str | None = None
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def take(self) -> bool:
        """Claim it if it is free, or its holder has not renewed it for a lease; tell whether so.

        If not, `other` is who has it, and `is_renewed` whether it was seen to be alive.
        """
        at, version = self.clock(), self.text.read()
        self.other = other = holder_of(version)
        if other and not other.is_gone and other.id != self.holder.id:
            if self._unchanged(version) < other.lease:
                return False
            text = "%s: not renewed for %g s by %s (%s): taking it over"
            log.warning(text, self.place, other.lease, other.what, other)
        mine = replace(self.holder, fencing=version.number + 1)
        made = self.text.replace(version, form(mine))
        if made is None:
            return False
        self.version, self.holder, self.seen_at = made, mine, at
        return True

    def _unchanged(self, version: Version) -> float:
        """Return how many seconds that version has been unchanged."""
        now = self.clock()
        is_same = self.version is not None and self.version.number == version.number
        if not is_same:
            self.is_renewed |= self.version is not None
            self.version, self.seen_at = version, now
        return now - self.seen_at

    def require(self) -> None:
        """Return while nobody else can have it; renew it if that was not done for long.

        LostLockError if another run has taken it over, ShardpostError if the store does not answer.
        """
        with self._mutex:
            for _ in range(MOST_RENEWALS):
                if self.lost is None and self.age() < RELIED_ON * self.holder.lease:
                    return
                self._write(self.holder)
        raise ShardpostError(
            f"{self.holder.what}: its lock {self.place} cannot be renewed: the store takes"
            f" {self.age():.0f} s for it, expected less than {self.holder.lease:g} s"
        )

    def renew(self) -> None:
        """Renew it, unless it was released; errors as those of `require`."""
        with self._mutex:
            if not self._ended.is_set():
                self._write(self.holder)

    def keep(self) -> None:
        """Renew it until it is released or lost."""
        is_said = False
        while not self._ended.wait(RENEWED * self.holder.lease):
            try:
                self.renew()
            except LostLockError as error:
                log.error("%s", error)  # noqa: TRY400 - one line
                return
            except Exception as error:
                if not is_said:
                    log.warning("%s cannot be renewed, trying again: %s", self.place, error)
                is_said = True
            else:
                is_said = False

    def release(self) -> None:
        """Free it for the next one at once; what fails is left to the end of the lease."""
        with self._mutex:
            self._ended.set()
            if self.lost is not None:
                return
            try:
                self._write(replace(self.holder, is_free=True))
            except LostLockError as error:
                log.warning("%s", error)
            except Exception as error:
                text = "%s is free %g s after its last renewal: %s"
                log.warning(text, self.place, self.holder.lease, error)

    def age(self) -> float:
        """Return how long ago it was renewed, in seconds."""
        return self.clock() - self.seen_at

    def _write(self, holder: Holder) -> None:
        """Write the next version; a write of its own, whose answer was lost, may be before it."""
        while self.lost is None:
            at = self.clock()
            if made := self.text.replace(self.version or Version(0), form(holder)):
                self.version, self.holder, self.seen_at = made, holder, at
                return
            self.version = self.text.read()
            now = holder_of(self.version)
            if now is None or now.id != self.holder.id:
                who = f"{now.what} has it ({now})" if now else "others may have had it"
                self.lost = (
                    f"{self.holder.what}: its lock {self.place} was taken over, since it was not"
                    f" renewed for {self.holder.lease:g} s: {who}; this run commits nothing more"
                )
        raise LostLockError(self.lost)
