"""Running a command and measuring it: wall time, and the peak memory of each of its processes."""

import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLED_SECONDS = 0.2
MIB = 1 << 20


@dataclass(frozen=True)
class Measured:
    """One run: wall seconds, {kind of process: peak resident MiB}, its log, processor seconds."""

    seconds: float
    peaks: Mapping[str, int]
    log: str
    processor: float = 0.0

    @property
    def peak(self) -> int:
        """The largest process's peak in MiB."""
        return max(self.peaks.values(), default=0)


def run(command: list[str], environ: Mapping[str, str], cwd: Path) -> Measured:
    """Run a command to its end; RuntimeError with its last lines if it fails."""
    began, used = time.perf_counter(), _processor()
    process = _started(command, environ, cwd)
    peaks: dict[int, tuple[str, int]] = {}
    sampler = threading.Thread(target=_sample, args=(psutil.Process(process.pid), peaks))
    sampler.start()
    _, log = process.communicate()
    seconds = time.perf_counter() - began
    sampler.join()
    if process.returncode:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}: {log[-2000:]}")
    return Measured(seconds, _by_kind(peaks), log, _processor() - used)


def _processor() -> float:
    """Return the processor seconds of all children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def kill_when(command: list[str], environ: Mapping[str, str], cwd: Path, said: str) -> None:
    """Run a command until its log says that, then end it and all its children by SIGKILL."""
    process = _started(command, environ, cwd, process_group=0)
    heard = any(said in line for line in process.stderr or ())
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    if not heard:
        raise RuntimeError(f"{command[0]} ended before it said {said!r}")


def _started(
    command: list[str], environ: Mapping[str, str], cwd: Path, process_group: int | None = None
) -> "subprocess.Popen[str]":
    """Start a command, of whose output only standard error is kept."""
    return subprocess.Popen(
        command,
        env=dict(environ),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=process_group,
    )


def _sample(root: psutil.Process, peaks: dict[int, tuple[str, int]]) -> None:
    while root.is_running() and root.status() != psutil.STATUS_ZOMBIE:
        with suppress(psutil.NoSuchProcess):
            for process in (root, *root.children(recursive=True)):
                with suppress(psutil.NoSuchProcess, OSError):
                    _, before = peaks.get(process.pid, ("", 0))
                    # One that has ended, and is not waited for yet, has no peak any more.
                    peaks[process.pid] = (process.name(), max(before, _peak(process.pid)))
        time.sleep(SAMPLED_SECONDS)


def _peak(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def _by_kind(peaks: Mapping[int, tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, peak in peaks.values():
        found[name] = max(found.get(name, 0), peak // MIB)
    return found
