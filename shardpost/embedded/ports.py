"""TCP ports on loopback: which are free, and who has the others."""

import random
import socket

import psutil

from shardpost.errors import ShardpostError

LOOPBACK = "127.0.0.1"
# Below those that Linux gives to outgoing connections: a port kept for later stays free.
_CHOICE = range(20_000, 32_000)


def is_free(port: int) -> bool:
    """Tell whether nobody listens on the port and we may."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def accepts(port: int, host: str = LOOPBACK, wait: float = 3.0) -> bool:
    """Tell whether somebody takes connections on the port."""
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
    """Raise ShardpostError, saying who has it, if the port of `what` cannot be listened on."""
    if not is_free(port):
        raise ShardpostError(
            f"port {port} of {what} is taken by {owner(port)}:"
            f" stop that, or set {setting} to a free port"
        )


def owner(port: int) -> str:
    """Return who listens on the port, as far as this user may know."""
    try:
        found = psutil.net_connections(kind="tcp")
        pids = {
            c.pid for c in found if c.status == psutil.CONN_LISTEN and c.laddr[1] == port and c.pid
        }
        process = psutil.Process(min(pids, default=0))
        return f"{process.name()} (pid {process.pid})" if pids else "another process"
    except psutil.Error:
        return "another process"
