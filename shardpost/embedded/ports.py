"""TCP ports on loopback: which are free, and which process listens on the others."""

import random
import socket

import psutil

from shardpost.errors import ShardpostError

LOOPBACK = "127.0.0.1"
# Below the ephemeral ports of Linux: a port that is chosen now stays free.
_CHOICE = range(20_000, 32_000)


def is_free(port: int) -> bool:
    """Tell whether this process could listen on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def accepts(port: int, host: str = LOOPBACK, wait: float = 3.0) -> bool:
    """Tell whether a process accepts connections on the port."""
    try:
        socket.create_connection((host, port), wait).close()
    except OSError:
        return False
    return True


def choose() -> int:
    """Return a port that is free now and likely to stay so."""
    while not is_free(port := random.choice(_CHOICE)):  # noqa: S311 (no secret)
        pass
    return port


def require_free(port: int, what: str, setting: str) -> None:
    """Raise ShardpostError, with the process that has it, if the port of `what` is in use."""
    if not is_free(port):
        raise ShardpostError(
            f"port {port} of {what} is in use by {owner(port)}:"
            f" stop it, or set {setting} to a free port"
        )


def owner(port: int) -> str:
    """Return which process listens on the port, as far as this user may know."""
    try:
        found = psutil.net_connections(kind="tcp")
        pids = {
            c.pid for c in found if c.status == psutil.CONN_LISTEN and c.laddr[1] == port and c.pid
        }
        process = psutil.Process(min(pids, default=0))
        return f"{process.name()} (pid {process.pid})" if pids else "another process"
    except psutil.Error:
        return "another process"
