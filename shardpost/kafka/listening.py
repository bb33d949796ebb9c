"""Whether anybody listens at Kafka's addresses: plain TCP connections, no request.

Kafka's clients retry for as long as they are told to, and cannot tell a broker that is slow from
one that is gone; the socket can.
"""

import socket
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from threading import Thread

# A server and why it cannot be connected to; None if it can.
_Answer = tuple[str, str | None]


def why_nobody_listens(bootstrap: str, seconds: float) -> str | None:
    """Return why no server accepts a connection within so many seconds; None if one does.

    `bootstrap` is `host:port`, comma-separated: one that answers is enough.
    """
    servers = [server.strip() for server in bootstrap.split(",")]
    answers: SimpleQueue[_Answer] = SimpleQueue()
    for server in servers:  # daemons: resolving a name cannot be interrupted
        Thread(target=_connect, args=(server, seconds, answers), daemon=True).start()
    reasons = dict.fromkeys(servers, f"no answer within {seconds:g} s")
    deadline = time.monotonic() + seconds
    for _ in servers:
        try:
            server, reason = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        if reason is None:
            return None
        reasons[server] = reason
    return _in_words(servers, reasons)


def _connect(server: str, seconds: float, answers: "SimpleQueue[_Answer]") -> None:
    host, _, port = server.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    except TimeoutError:
        answers.put((server, f"no answer within {seconds:g} s"))
    except OSError as error:
        answers.put((server, (error.strerror or str(error)).lower()))
    else:
        answers.put((server, None))


def _in_words(servers: Sequence[str], reasons: dict[str, str]) -> str:
    """Return the reasons; of a single server without its name."""
    if len(servers) == 1:
        return reasons[servers[0]]
    return ", ".join(f"{server}: {reasons[server]}" for server in servers)
