"""Daemons of the embedded stack, found again by their pid file; and TCP ports on loopback.

They are started apart from their caller. A pid file identifies one process uniquely: its pid, its
start time since boot, which no correction of the clock changes, and the boot.
"""

import json
import os
import random
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil

from shardpost.errors import ShardpostError
from shardpost.locks.process_identity import boot_of_machine, stat_of
from shardpost.waiting import attempts

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
# Below the ephemeral ports of Linux: a port that is chosen now stays free.
_PORTS_TO_CHOOSE = range(20_000, 32_000)


def port_is_free(port: int) -> bool:
    """Tell whether this process could listen on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def port_accepts(port: int, host: str = LOOPBACK, wait: float = 3.0) -> bool:
    """Tell whether a process accepts connections on the port."""
    try:
        socket.create_connection((host, port), wait).close()
    except OSError:
        return False
    return True


def choose_port() -> int:
    """Return a port that is free now and likely to stay so."""
    while not port_is_free(port := random.choice(_PORTS_TO_CHOOSE)):  # noqa: S311 (no secret)
        pass
    return port


def require_free_port(port: int, what: str, setting: str) -> None:
    """Raise ShardpostError, with the process that has it, if the port of `what` is in use."""
    if not port_is_free(port):
        raise ShardpostError(
            f"port {port} of {what} is in use by {port_owner(port)}:"
            f" stop it, or set {setting} to a free port"
        )


def port_owner(port: int) -> str:
    """Return which process listens on the port, as far as this user may know."""
    return _of_listener(port, lambda one: f"{one.name()} (pid {one.pid})") or "another process"


def folder_of_listener(port: int) -> Path | None:
    """Return the working directory of the process that listens on the port, as far as known.

    Of a daemon that is where its pid file is.
    """
    return _of_listener(port, lambda one: Path(one.cwd()))


def _of_listener(port: int, ask: Callable[[psutil.Process], T]) -> T | None:
    with suppress(psutil.Error):
        pids = {
            c.pid
            for c in psutil.net_connections(kind="tcp")
            if c.status == psutil.CONN_LISTEN and c.laddr[1] == port and c.pid
        }
        return ask(psutil.Process(min(pids))) if pids else None
    return None


POLL_SECONDS = 0.1
STOP_SECONDS = 30.0
KEEP_LOG_BYTES = 10_000_000
_FAILURE = re.compile(r"\b(ERROR|FATAL|CRITICAL|\w*Exception|\w*Error)\b")


class Identity(NamedTuple):
    """What identifies a process, also after its pid was reused."""

    pid: int
    started: int
    boot: str


@dataclass(frozen=True)
class Daemon:
    """One process of the stack: its command, its log and its pid file."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    log: Path
    pid_file: Path

    def start(self) -> None:
        """Start it in its own session, with its output in the log and no open file of the caller.

        Its working directory is that of the pid file.
        """
        for path in (self.log, self.pid_file):
            path.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > KEEP_LOG_BYTES:
            self.log.replace(self.log.with_name(self.log.name + ".1"))
        with self.log.open("ab") as log:
            try:
                process = subprocess.Popen(
                    self.command,
                    cwd=self.pid_file.parent,
                    env=self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise ShardpostError(f"{self.name} cannot be started: {error}") from None
        self._remember(process.pid)
        process.returncode = 0  # it outlives this process, which never waits for it

    def _remember(self, pid: int) -> None:
        stat = stat_of(pid)
        identity = Identity(pid, stat.started if stat else 0, boot_of_machine())
        fresh = self.pid_file.with_name(f".{self.pid_file.name}")
        fresh.write_text(json.dumps(identity._asdict()))
        fresh.replace(self.pid_file)

    @property
    def identity(self) -> Identity | None:
        """The process that the pid file names, running or not."""
        try:
            return Identity(**json.loads(self.pid_file.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    @property
    def _of_this_boot(self) -> Identity | None:
        identity = self.identity
        return identity if identity and identity.boot == boot_of_machine() else None

    @property
    def pid(self) -> int | None:
        """The pid of the process while it runs."""
        identity = self._of_this_boot
        stat = stat_of(identity.pid) if identity else None
        return identity.pid if identity and stat and stat.started == identity.started else None

    @property
    def alive(self) -> bool:
        """Whether the process that was started still runs."""
        return self.pid is not None

    def stop(self, wait: float = STOP_SECONDS) -> None:
        """Send it SIGTERM, and after `wait` seconds SIGKILL to what is left of its session.

        Returns when no process is left; does nothing where there is none.
        """
        session = self._session()
        pid = self.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)  # a stopped process does not handle signals
            _poll(lambda: not self.alive, wait)
        if session is not None:
            if not _poll(lambda: not _kill_session(session), STOP_SECONDS):
                raise ShardpostError(
                    f"{self.name}: pids {session_members(session)} do not end after SIGKILL"
                )
            with suppress(ChildProcessError):
                os.waitpid(session, os.WNOHANG)  # reaps it where this process is its parent
        with suppress(OSError):  # a home that cannot be written: the process has ended anyway
            self.pid_file.unlink(missing_ok=True)

    def _session(self) -> int | None:
        """Return the session, also of a dead leader; None if its number may be reused."""
        identity = self._of_this_boot
        if identity is None:
            return None
        taken = stat_of(identity.pid)  # no pid is reused while a session has it
        reused = taken is not None and taken.started != identity.started
        return None if reused else identity.pid


def state_of(
    daemon: Daemon, port: int, is_ready: Callable[[], bool], address: str
) -> dict[str, str]:
    """Return `state` (up, down or unhealthy), `address`, and `detail` if there is more to say."""
    state = {"address": address}
    if daemon.alive:
        if is_ready():
            return {"state": "up", **state}
        detail = f"pid {daemon.pid} runs but does not answer; {log_hint(daemon.log)}"
        return {"state": "unhealthy", **state, "detail": detail}
    if daemon.identity is not None:
        state["detail"] = f"it ended without being stopped; {log_hint(daemon.log)}"
    if not port_is_free(port):
        state["detail"] = f"port {port} is in use by {port_owner(port)}"
    return {"state": "down", **state}


def stop_together(daemons: Sequence[Daemon], wait: float = STOP_SECONDS) -> None:
    """Stop daemons that do not need each other, all at once."""
    with ThreadPoolExecutor(len(daemons)) as pool:
        list(pool.map(lambda daemon: daemon.stop(wait), daemons))


def session_members(session: int) -> list[int]:
    """Return the running processes of a session.

    Airflow's tasks are in process groups of their own, and overwrite what they were started with.
    """
    return [pid for pid in psutil.pids() if (stat := stat_of(pid)) and stat.session == session]


def _kill_session(session: int) -> list[int]:
    """Send SIGKILL to the processes of a session that still run; return them."""
    left = session_members(session)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def wait_until(
    condition: Callable[[], bool], what: str, wait: float, daemons: Sequence[Daemon] = ()
) -> None:
    """Return when it holds; ShardpostError, with logs, if a daemon died or `wait` is over."""
    reached = _poll(lambda: condition() or not all(daemon.alive for daemon in daemons), wait)
    dead = [daemon for daemon in daemons if not daemon.alive]
    if dead:
        raise ShardpostError(f"{what}: {dead[0].name} ended while starting; {log_end(dead[0].log)}")
    if not reached:
        ends = "; ".join(log_end(daemon.log) for daemon in daemons)
        raise ShardpostError(f"{what}: not ready within {wait:g} s; {ends}")


def log_end(log: Path, lines: int = 3) -> str:
    """Return the path of a log and its last lines, on one line."""
    text = log.read_bytes()[-4000:].decode(errors="replace") if log.exists() else ""
    last = [line.strip() for line in text.splitlines() if line.strip()][-lines:]
    return f"its log {log} ends: {' | '.join(last) or '(nothing)'}"


def log_hint(log: Path) -> str:
    """Return the path of a log, and its last line if that reports a failure."""
    end = log_end(log, 1)
    return end if _FAILURE.search(end.partition(" ends: ")[2]) else f"its log is {log}"


def _poll(condition: Callable[[], bool], wait: float) -> bool:
    return any(condition() for _ in attempts(wait, POLL_SECONDS))
