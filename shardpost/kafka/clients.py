"""Connections to Kafka: clients, clients that stay open, and whether anything listens.

A new client takes some twenty milliseconds until it is connected, which a run that stays would
spend again and again. By default none is kept, and each is closed after its use.
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import Any, Generic, Protocol, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from shardpost.errors import ShardpostError, UsageError
from shardpost.kafka.records import TopicPartition
from shardpost.settings.forms import JAVA_ONLY, OAUTH_CALLBACK
from shardpost.waiting import answers

TRANSACTIONS_TOPIC = "__transaction_state"  # Kafka's own: one is listed, not all
# A partition has no leader for a moment: it is new, its broker has just started, or another one
# takes over. After a restart, broker and client may also disagree for a moment on the leader's
# epoch (KIP-320). The coordinator of a group moves likewise. The last five are librdkafka's: a
# broker that has just started does not know its topics yet, none of the partitions has a leader, or
# the connection was lost during a request.
TRANSIENT_ERRORS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,  # a new leader does not know yet how far it is replicated
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._NOENT,
    KafkaError._TRANSPORT,
    KafkaError._DESTROY_BROKER,
)


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


def librdkafka_settings(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that librdkafka takes; UsageError for a callback that is no function."""
    settings: dict[str, Any] = {
        name: value for name, value in given.items() if not name.startswith(JAVA_ONLY)
    }
    if path := settings.get(OAUTH_CALLBACK):
        try:
            settings[OAUTH_CALLBACK] = resolve_name(path)
        except (ImportError, AttributeError, ValueError) as error:
            said = f"SHARDPOST_KAFKA__OAUTH_CB={path}: expected the path of a function: {error}"
            raise UsageError(said) from None
    return settings


def why_nobody_listens(bootstrap: str, seconds: float) -> str | None:
    """Return why no server accepts a connection within `seconds`; None if one does.

    `bootstrap` is `host:port`, comma-separated: one that answers is enough. Of several servers, the
    reasons are given by their names.
    """
    servers = [server.strip() for server in bootstrap.split(",")]
    reasons = dict.fromkeys(servers, f"no answer within {seconds:g} s")
    # In threads: resolving a name cannot be interrupted.
    asked = [partial(_why_not_connected, server, seconds) for server in servers]
    for number, reason in answers(asked, seconds):
        if reason is None:
            return None
        reasons[servers[number]] = reason
    if len(servers) == 1:
        return reasons[servers[0]]
    return ", ".join(f"{server}: {reason}" for server, reason in reasons.items())


def _why_not_connected(server: str, seconds: float) -> str | None:
    host, _, port = server.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    except ValueError as error:  # of a port or a name that no socket takes
        return str(error)
    return None


def connect(client: Producer, seconds: float) -> None:
    """Wait until a broker is connected; KafkaException if none is after `seconds`.

    librdkafka 2.16 asks for a producer's id at once if one is, and else half a second later.
    """
    client.list_topics(TRANSACTIONS_TOPIC, timeout=seconds)


# Before the first request. The kernel of a machine that lives accepts a connection however busy its
# broker is; a lost packet is sent again after a second.
LISTEN_SECONDS = 2.0


# It is to say that a record came, and to read few. After one it would wait a second by default
# until it fetches more (librdkafka 2.16).
_WAITING = {"fetch.queue.backoff.ms": 10, "fetch.wait.max.ms": 1000, "queued.min.messages": 1}


class AwaitedRecords:
    """A consumer that waits for committed records, and reads nothing meanwhile; to be closed."""

    def __init__(self, consumer: Callable[..., GroupConsumer]) -> None:
        self._consumer = consumer
        self._reader: GroupConsumer | None = None
        # The offsets from which on it waits now.
        self._awaited: Mapping[TopicPartition, int] = {}

    def close(self) -> None:
        """Close the consumer."""
        if self._reader:
            self._leave(self._reader)
            with suppress(KafkaException, RuntimeError):
                self._reader.close()

    def wait(self, offsets: Mapping[TopicPartition, int], seconds: float) -> bool:
        """Wait for a record at or after those offsets; tell whether one arrived in time.

        That none came says little: Kafka may be away, which is no error here.
        """
        until = time.monotonic() + seconds
        with suppress(ShardpostError, KafkaException):
            if self._reader is None:
                self._reader = self._consumer("shardpost-reader", **_WAITING)
            if self._awaited != offsets:
                asked = [
                    confluent_kafka.TopicPartition(*at, first) for at, first in offsets.items()
                ]
                self._reader.assign(asked)
                self._awaited = offsets
            reader = self._reader
            while (left := until - time.monotonic()) > 0:
                message = reader.poll(left)
                if message is not None and not message.error():
                    self._leave(reader)
                    return True
        time.sleep(max(0.0, until - time.monotonic()))
        return False

    def _leave(self, reader: GroupConsumer) -> None:
        self._awaited = {}
        with suppress(KafkaException, RuntimeError):
            reader.unassign()


class _Closable(Protocol):
    def close(self) -> object: ...


Client = TypeVar("Client", bound=_Closable)


class KeptClients(Generic[Client]):
    """Clients between two uses, one for each thing that they are for, and `most` at once.

    Each has threads and connections. One that was not used for `idle_seconds`, or that `is_lost`
    meanwhile, is not used again, nor one that was made with something else than is wanted now.
    """

    def __init__(
        self,
        most: int,
        *,
        idle_seconds: float = float("inf"),
        is_lost: Callable[[Client], bool] = lambda _: False,
    ) -> None:
        self._most, self._idle_seconds, self._is_lost = most, idle_seconds, is_lost
        # With what each was made, and when it was used last.
        self._kept: dict[object, tuple[Client, object, float]] = {}
        self._is_keeping = False

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep returned clients within this block, and close them at its end."""
        self._is_keeping = True
        try:
            yield
        finally:
            self._is_keeping = False
            while self._kept:
                _close(self._kept.popitem()[1][0])

    def take(self, of: object, made_with: object = None) -> Client | None:
        """Return the client that was kept for that; None if there is none."""
        client, found, used_at = self._kept.pop(of, (None, None, 0.0))
        is_idle = time.monotonic() - used_at > self._idle_seconds
        if client is None or not (is_idle or found != made_with or self._is_lost(client)):
            return client
        _close(client)
        return None

    def give_back(
        self, of: object, client: Client, made_with: object = None, *, is_usable: bool = True
    ) -> None:
        """Keep a client, or close it."""
        is_free = of not in self._kept and len(self._kept) < self._most
        if self._is_keeping and is_usable and is_free:
            self._kept[of] = client, made_with, time.monotonic()
        else:
            client.close()


def _close(client: _Closable) -> None:
    with suppress(KafkaException, RuntimeError):
        client.close()
