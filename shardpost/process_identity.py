"""Which process it was that said something, and whether it is known to have ended."""

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil


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
        return cls(_machine(), pid, _start_of(pid) or "")

    @property
    def is_here(self) -> bool:
        """Tell whether its pid is one of this machine, or of this container."""
        return self.machine == _machine()

    @property
    def is_gone(self) -> bool:
        """Tell whether it is known to have ended: it was here and is no longer."""
        return self.is_here and _start_of(self.pid) not in (self.start, None)


@cache
def _machine() -> str:
    """Return what tells a start of a machine, and the pids of a container on it, from others.

    With the name of the host: the copy of a machine that runs has all the rest.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()} {boot} {Path('/proc/self/ns/pid').readlink()}"


def _start_of(pid: int) -> str | None:
    """Return when a process started, in the kernel's count; "" if it ended, None if unknown."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # hidden, as another user's may be, unless there is none
        return None if psutil.pid_exists(pid) else ""
    return "" if state == "Z" else fields[18]
