"""Locks that hold between machines: claims in the object store, next to the tables.

A claim is a versioned text that names its holder. Its holder writes the next version every few
seconds; who finds one that stays the same for the length of its lease writes the next one as its
own. Both have to be the next after what they have read, so one of them wins, and no clock is
compared with another machine's: a lease is measured by who waits for it to end, from when it saw
the version, and by its holder from before it wrote it, each on a clock that also counts while the
process or the machine is suspended.

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
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime

from shardpost.errors import ShardpostError
from shardpost.locks.process_identity import ProcessIdentity
from shardpost.locks.shared_files import Version, VersionedText

LEASE_SECONDS = 30.0
# Of a lease: how often it is renewed; how old a renewal may be that is relied on (what is done then
# has the rest of it to end); how often who waits for it looks.
RENEWED, RELIED_ON, LOOKED_AT = 1 / 6, 2 / 3, 1 / 30
# What was read is of no use after so long: a lock that is free for two weeks may be removed, and
# then numbers begin again.
LATEST_SECONDS = 86_400.0
# A store that takes longer than a lease for each renewal is of no use.
MOST_RENEWALS = 3

log = logging.getLogger(__name__)


class LostLockError(ShardpostError):
    """Another run has taken over the lock of this one, which must commit nothing more."""


def boot_clock() -> float:
    """Return the seconds since this machine started, those while it was suspended among them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Holder:
    """Who has a claim, as the store has it; `fencing` is 0 until the first version is written.

    `since` is by the holder's clock, for people. `machine` tells the processes that are seen here,
    and `start` a process from a later one of its pid. `attempt` is another one for each attempt to
    write it: one that is made again is not taken for the one before, whose answer was lost.
    """

    what: str
    host: str
    pid: int
    since: str
    machine: str
    start: str
    id: str
    lease: float = LEASE_SECONDS
    fencing: int = 0
    is_free: bool = False
    attempt: str = ""

    def __str__(self) -> str:
        since = f"{datetime.fromisoformat(self.since):%Y-%m-%d %H:%M:%S} UTC"
        return f"host {self.host}, pid {self.pid}, since {since}, fencing number {self.fencing}"

    @property
    def is_here(self) -> bool:
        """Tell whether its pid is one of this machine, or of this container."""
        return self._process.is_here

    @property
    def is_gone(self) -> bool:
        """Tell whether it is known to have ended: it was here and is no longer."""
        return self._process.is_gone

    @property
    def _process(self) -> ProcessIdentity:
        return ProcessIdentity(self.machine, self.pid, self.start)


def this_process(what: str, now: datetime, lease: float) -> Holder:
    """Return this process as the holder of a claim; each claim is another one's."""
    own, host, id_ = ProcessIdentity.own(), socket.gethostname(), uuid.uuid4().hex
    return Holder(what, host, own.pid, now.isoformat(), own.machine, own.start, id_, lease)


def holder_of(version: Version) -> Holder | None:
    """Return who has a claim; None if it is free, or was never claimed."""
    if version.text is None:
        return None
    found = Holder(**json.loads(version.text))
    return None if found.is_free else found


@dataclass(eq=False)
class Claim:
    """A claim that this process has; `place` is its URL. Any thread may ask it."""

    text: VersionedText
    place: str
    version: Version
    holder: Holder
    renewed_at: float
    clock: Callable[[], float] = boot_clock
    lost: str | None = None
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def require(self) -> None:
        """Return while nobody else can have it; renew it if that was not done for long.

        LostLockError if another run has taken it over, ShardpostError if the store does not answer.
        """
        with self._mutex:
            for _ in range(MOST_RENEWALS):
                if self.lost is None and self.age() < RELIED_ON * self.holder.lease:
                    return
                self._renew()
        raise ShardpostError(
            f"{self.holder.what}: its lock {self.place} cannot be renewed: the store takes"
            f" {self.age():.0f} s for it, expected less than {self.holder.lease:g} s"
        )

    def renew(self) -> None:
        """Renew it, unless it was released; errors as those of `require`."""
        with self._mutex:
            if not self._ended.is_set():
                self._renew()

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
        return self.clock() - self.renewed_at

    def _renew(self) -> None:
        self._write(self.holder)

    def _write(self, holder: Holder) -> None:
        """Write the next version; a write of its own, whose answer was lost, may be before it."""
        while self.lost is None:
            at = self.clock()
            made = self.text.replace(self.version, form(holder))
            is_late = self.age() > LATEST_SECONDS
            if made and not is_late:
                self.version, self.holder, self.renewed_at = made, holder, at
                return
            self.version = self.text.read()
            now = holder_of(self.version)
            if is_late or now is None or now.id != self.holder.id:
                self.lost = self._lost_to(now)
        raise LostLockError(self.lost)

    def _lost_to(self, other: Holder | None) -> str:
        known = other is not None and other.id != self.holder.id
        who = f"{other.what} has it ({other})" if other and known else "others may have had it"
        return (
            f"{self.holder.what}: its lock {self.place} was taken over, since it was not renewed"
            f" for {self.holder.lease:g} s: {who}; this run commits nothing more"
        )


def form(holder: Holder) -> str:
    """Return the text of a version of a claim; each is another one."""
    return json.dumps(asdict(replace(holder, attempt=uuid.uuid4().hex)))


Seen = tuple[int, float]  # the number of a version, and when it was seen


class Contender:
    """One who wants a claim, and looks at it again and again; `seen`: it has looked before."""

    def __init__(
        self,
        text: VersionedText,
        place: str,
        holder: Holder,
        seen: Seen | None = None,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._text, self._place, self._holder, self._clock = text, place, holder, clock
        self._seen = seen
        self.other: Holder | None = None
        self.is_renewed = False

    def look(self) -> Claim | None:
        """Claim it if it is free, or its holder has not renewed it for a lease; else None.

        Then `other` is who has it, and `is_renewed` whether it was seen to be alive.
        """
        at = self._clock()
        version = self._text.read()
        self.other = other = holder_of(version)
        if other is None or other.is_gone or other.id == self._holder.id:
            return self._take(version, at)
        if self._unchanged(version) >= other.lease:
            text = "%s: not renewed for %g s by %s (%s): taking it over"
            log.warning(text, self._place, other.lease, other.what, other)
            return self._take(version, at)
        return None

    def _unchanged(self, version: Version) -> float:
        """Return for how many seconds that version was seen."""
        now = self._clock()
        if self._seen is None or self._seen[0] != version.number:
            self.is_renewed = self._seen is not None
            self._seen = version.number, now
        elif now - self._seen[1] > LATEST_SECONDS:
            self._seen = version.number, now
        return now - self._seen[1]

    def _take(self, version: Version, at: float) -> Claim | None:
        """Write the next version after one that was read not before `at`."""
        mine = replace(self._holder, fencing=version.number + 1)
        made = self._text.replace(version, form(mine))
        if made is None or self._clock() - at > LATEST_SECONDS:
            return None
        return Claim(self._text, self._place, made, mine, at, self._clock)
