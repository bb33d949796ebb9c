"""Kafka clients, configured as all of Shardpost's are, and how long a silent Kafka is waited for.

All code gets its clients here. Before one is made, a TCP connection to Kafka is tried, so that a
broker that is gone is said within seconds (KafkaUnreachableError): Kafka's clients retry for as
long as they are told to, and cannot tell a broker that is slow from one that is gone; the socket
can.
"""

import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from shardpost.errors import ShardpostError
from shardpost.kafka.refusals import why_refused
from shardpost.settings import Settings


class GroupConsumer(Consumer):
    """A consumer that knows the name of its group; stale is one that gave no answer in time."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.group: str = config["group.id"]
        self.is_stale = False


@dataclass(frozen=True)
class ClientFactories:
    """What makes the clients of a Kafka, each from its configuration."""

    admin: Callable[[dict[str, Any]], AdminClient]
    consumer: Callable[[dict[str, Any]], GroupConsumer]
    producer: Callable[[dict[str, Any]], Producer]
    transactional_producer: Callable[[dict[str, Any]], Producer]


TRANSACTIONS_TOPIC = "__transaction_state"  # Kafka's own

# An admin client that was not used for so many seconds is not used again: a broker may have been
# restarted meanwhile, which a client that was connected notices late.
IDLE_SECONDS = 2.0
_shared: dict[tuple[int, str], tuple[AdminClient, float]] = {}  # and when it was used last


# By the scheme of an address (`SCHEME://host:port`): of brokers that run in this very process, so
# that there is nothing to connect to. All others have librdkafka's clients.
IN_PROCESS: dict[str, ClientFactories] = {}
_LIBRDKAFKA = ClientFactories(AdminClient, GroupConsumer, Producer, Producer)

# A server and why it cannot be connected to; None if it can.
_Answer = tuple[str, str | None]


def why_nobody_listens(bootstrap: str, seconds: float) -> str | None:
    """Return why no server accepts a connection within so many seconds; None if one does.

    `bootstrap` is `host:port`, comma-separated: one that answers is enough. Of several servers, the
    reasons are given by their names.
    """
    if _scheme(bootstrap) in IN_PROCESS:
        return None
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


def _scheme(bootstrap: str) -> str:
    return bootstrap.partition("://")[0]


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
# Kafka that was there before, and where nobody listens for so long, is gone. A broker that restarts
# is back sooner, and another one of its cluster listens meanwhile.
GONE_SECONDS = 30.0
LISTEN_AGAIN_SECONDS = 0.5

_found_listening: set[str] = set()  # addresses


def why_gone(address: str) -> str | None:
    """Return why nobody listens there; None if somebody does.

    After LISTEN_SECONDS; after GONE_SECONDS if this process has found somebody there before.
    """
    deadline = time.monotonic() + (GONE_SECONDS if address in _found_listening else 0)
    while reason := why_nobody_listens(address, LISTEN_SECONDS):
        if time.monotonic() >= deadline:
            _found_listening.discard(address)
            return reason
        time.sleep(LISTEN_AGAIN_SECONDS)
    _found_listening.add(address)
    return None


class Patience:
    """How long to wait for Kafka without any progress: `kafka_timeout`; less if it is gone.

    A cluster that is slow listens all the time, and has the whole time.
    """

    def __init__(self, settings: Settings) -> None:
        self._address, self._most = settings.bootstrap, settings.kafka_timeout
        self.progress()

    def progress(self) -> None:
        """Begin again: something was answered."""
        self._began = self._listened = self._asked = time.monotonic()

    @property
    def seconds(self) -> float:
        """Return for how long there was no progress."""
        return time.monotonic() - self._began

    @property
    def is_over(self) -> bool:
        """Tell whether to give up; asks now and then whether anybody listens."""
        return self.seconds > self._most or self._is_gone()

    def _is_gone(self) -> bool:
        if time.monotonic() - self._asked < LISTEN_SECONDS:
            return False
        reason = why_nobody_listens(self._address, LISTEN_SECONDS)
        self._asked = time.monotonic()
        if reason is None:
            self._listened = self._asked
        is_gone = self._asked - self._listened > GONE_SECONDS
        if is_gone:
            _found_listening.discard(self._address)
        return is_gone


# Of the first request of all: something listens, but may be no Kafka.
FIRST_ANSWER_SECONDS = 15.0


class KafkaUnreachableError(ShardpostError):
    """Kafka did not answer in time."""


def require_listening(settings: Settings) -> None:
    """Raise KafkaUnreachableError if nobody listens at Kafka's addresses, or refuses our clients.

    Whether it refuses them is asked once in a process, of a Kafka with TLS or a login.
    """
    if reason := why_gone(settings.bootstrap):
        raise KafkaUnreachableError(_said(settings, reason))
    if SECURITY in settings.kafka and (refusal := why_not_admitted(settings)):
        raise KafkaUnreachableError(refusal)


SECURITY = "security.protocol"
ADMISSION_SECONDS = 3.0  # for a first answer; a Kafka that is slower is not said to refuse
_admitted: set[tuple[int, str]] = set()  # processes and the configurations of their clients


def why_not_admitted(settings: Settings) -> str | None:
    """Return why Kafka refuses our clients, and what to do; None once it has admitted one."""
    config = client_config(settings)
    key = (os.getpid(), repr(sorted(config.items())))
    if key in _admitted or is_in_process(settings):
        return None
    reason = why_refused(settings, config, ADMISSION_SECONDS)
    if reason is None:
        _admitted.add(key)
        return None
    to_do = "correct SHARDPOST_KAFKA__…, or the address (SHARDPOST_BOOTSTRAP_SERVERS)"
    return f"Kafka at {settings.bootstrap} refuses this client ({reason}): {to_do}"


def client_config(settings: Settings, **more: Any) -> dict[str, Any]:
    """Return what every librdkafka client of ours is configured with."""
    return {
        "bootstrap.servers": settings.bootstrap,
        "client.id": "shardpost",
        "log_level": 0,
        **settings.kafka,
        **more,
    }


def admin(settings: Settings, *, shared: bool = True) -> AdminClient:
    """Return an admin client; KafkaUnreachableError if nobody listens at Kafka's addresses.

    One question after another is asked by one client, in all threads of this process: it is
    connected, and knows the leaders. It is not closed. One that is not `shared` is for a broker
    that may be starting, and lets a connection hang.
    """
    require_listening(settings)
    more = {"allow.auto.create.topics": False}  # not even a topic that is asked for by name
    config, make = client_config(settings, **more), _factories(settings).admin
    if not shared:
        return make(config)
    now, key = time.monotonic(), (os.getpid(), repr(sorted(config.items())))
    for idle in [one for one, (_, used_at) in [*_shared.items()] if now - used_at > IDLE_SECONDS]:
        _shared.pop(idle, None)
    client, _ = _shared.get(key) or (make(config), now)
    _shared[key] = client, now
    return client


def forget_admins() -> None:
    """Have the next questions asked by new clients: one that knows a former leader keeps to it."""
    _shared.clear()


def is_in_process(settings: Settings) -> bool:
    """Tell whether its brokers run in this very process."""
    return _scheme(settings.bootstrap) in IN_PROCESS


def _factories(settings: Settings) -> ClientFactories:
    return IN_PROCESS.get(_scheme(settings.bootstrap), _LIBRDKAFKA)


def consumer(settings: Settings, group: str, **more: Any) -> GroupConsumer:
    """Return a consumer that commits nothing by itself and reads only what is committed."""
    require_listening(settings)
    base = {
        "group.id": group,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
    }
    return _factories(settings).consumer(client_config(settings, **(base | more)))


def producer(settings: Settings) -> Producer:
    """Return a plain producer: idempotent, and placing keys as Java clients do."""
    require_listening(settings)
    more = {"partitioner": "murmur2_random", "enable.idempotence": True}
    client = _factories(settings).producer(client_config(settings, **more))
    with suppress(KafkaException):  # whoever flushes is told
        connect(client, LISTEN_SECONDS)
    return client


def connect(client: Producer, seconds: float) -> None:
    """Wait until a broker is connected; KafkaException if none is after so many seconds.

    librdkafka 2.16 asks for a producer's id at once if one is, and else half a second later.
    """
    client.list_topics(TRANSACTIONS_TOPIC, timeout=seconds)


# What a client would print in its own words, at any log level: that another one has fenced it, as
# FATAL. Whoever writes is told by an error, and says what it means; a writer that was kept open and
# is fenced by another run is nobody's trouble.
_UNPRINTED = logging.getLogger(f"{__name__}.librdkafka")
_UNPRINTED.setLevel(logging.CRITICAL + 1)


def transactional_producer(settings: Settings, transactional_id: str, **more: Any) -> Producer:
    """Return a producer under that id; calling init_transactions on it fences all older ones."""
    base = {
        "transactional.id": transactional_id,
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "logger": _UNPRINTED,
    }
    return _factories(settings).transactional_producer(client_config(settings, **(base | more)))


def unreachable(settings: Settings, error: Exception) -> KafkaUnreachableError:
    """Return the error that says that Kafka cannot be reached, or refuses us, and what to do."""
    is_asked = SECURITY in settings.kafka or why_nobody_listens(settings.bootstrap, LISTEN_SECONDS)
    if not is_asked and (refusal := why_not_admitted(settings)):
        return KafkaUnreachableError(refusal)
    reason = error.args[0].str() if error.args and hasattr(error.args[0], "str") else error
    return KafkaUnreachableError(_said(settings, reason))


def _said(settings: Settings, reason: object) -> str:
    to_do = "start it, or correct SHARDPOST_BOOTSTRAP_SERVERS"
    if settings.bootstrap_servers is None:
        to_do = (
            "`shardpost status` says what is up, `shardpost up` starts it; for another Kafka set"
            " SHARDPOST_BOOTSTRAP_SERVERS"
        )
    return f"Kafka at {settings.bootstrap} cannot be reached ({reason}): {to_do}"
