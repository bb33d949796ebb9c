"""What connects to Kafka: a consumer that knows its group, and whether somebody listens at all."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

TRANSACTIONS_TOPIC = "__transaction_state"  # Kafka's own: one is listed, not all


class GroupConsumer(Consumer):
    """A consumer that knows the name of its group; stale is one that gave no answer in time."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.group: str = config["group.id"]
        self.is_stale = False


@dataclass(frozen=True)
class ClientFactories:
    """What makes the clients of a Kafka, each from its configuration."""

    admin: Callable[[dict[str, Any]], AdminClient] = AdminClient
    consumer: Callable[[dict[str, Any]], GroupConsumer] = GroupConsumer
    producer: Callable[[dict[str, Any]], Producer] = Producer
    transactional_producer: Callable[[dict[str, Any]], Producer] = Producer


# A server and why it cannot be connected to; None if it can.
_Answer = tuple[str, str | None]


def why_nobody_listens(bootstrap: str, seconds: float) -> str | None:
    """Return why no server accepts a connection within so many seconds; None if one does.

    `bootstrap` is `host:port`, comma-separated: one that answers is enough. Of several servers, the
    reasons are given by their names.
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
    if len(servers) == 1:
        return reasons[servers[0]]
    return ", ".join(f"{server}: {reason}" for server, reason in reasons.items())


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


# Before the first request. The kernel of a machine that lives accepts a connection however busy its
# broker is; a lost packet is sent again after a second.
LISTEN_SECONDS = 2.0
