"""The identity of a process, and whether it is known to have ended."""

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psutil


class Stat(NamedTuple):
    """A running process, by proc(5): its state, session, start in ticks since boot."""

    state: str
    session: int
    started: int


def stat_of(pid: int) -> Stat | None:
    """Return the stat of a process that runs; None if it has ended, reaped or not, or is hidden."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else Stat(state, int(fields[2]), int(fields[18]))


@dataclass(frozen=True)
class ProcessIdentity:
    """A process, as another one finds it again.

    `machine` tells the processes that are seen here, and `start` a process from a later one of its
    pid.
    """

    machine: str
    pid: int
    start: str

    @classmethod
    def own(cls) -> "ProcessIdentity":
        """Return this process."""
        pid = os.getpid()
        stat = stat_of(pid)
        return cls(_machine(), pid, str(stat.started) if stat else "")

    @property
    def is_here(self) -> bool:
        """Tell whether its pid is one of this machine, or of this container."""
        return self.machine == _machine()

    @property
    def is_gone(self) -> bool:
        """Tell whether it is known to have ended: it was here and is no longer."""
        if stat := stat_of(self.pid):
            return self.is_here and str(stat.started) != self.start
        # It may be hidden from this one, as another user's.
        is_hidden = psutil.pid_exists(self.pid) and not os.access(f"/proc/{self.pid}/stat", os.R_OK)
        return self.is_here and not is_hidden


@cache
def _machine() -> str:
    """Return what distinguishes a start of a machine, and the pids of a container on it.

    With the name of the host: the copy of a machine that runs has all the rest.
    """
    return f"{socket.gethostname()} {boot_of_machine()} {Path('/proc/self/ns/pid').readlink()}"


def boot_of_machine() -> str:
    """Return the id of this start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
