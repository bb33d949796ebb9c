"""A Kafka cluster, as an installation knows it, and the clients that reach it.

All code gets its clients here. Before one is made, a TCP connection to Kafka is tried, so that a
broker that is gone is said within seconds (KafkaUnreachableError): Kafka's clients retry for as
long as they are told to, and cannot tell a broker that is slow from one that is gone; the socket
can.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import lru_cache
from operator import methodcaller
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]

from shardpost.errors import ShardpostError
from shardpost.kafka import clients
from shardpost.kafka.greeting import why_refused
from shardpost.values.topic_names import TopicName

# An admin client that was not used for so many seconds is not used again: a broker may have been
# restarted meanwhile, which a client that was connected notices late.
IDLE_SECONDS = 2.0
# Kafka that was there before, and where nobody listens for so long, is gone. A broker that restarts
# is back sooner, and another one of its cluster listens meanwhile.
GONE_SECONDS = 30.0
LISTEN_AGAIN_SECONDS = 0.5
# Of the first request of all: something listens, but may be no Kafka.
FIRST_ANSWER_SECONDS = 15.0
# A client asks one broker, also one that halts or is cut off: then a new client asks others.
OTHER_BROKER_SECONDS = 5.0
LEADER_RETRY_SECONDS = 0.1
# After which a new client asks: the one that waits was told of a leader, or a controller, that has
# died since, and waits for it as long as it may.
LEADER_SECONDS = 10.0
SECURITY = "security.protocol"
ADMISSION_SECONDS = 3.0  # for a first answer; a Kafka that is slower is not said to refuse
MOST_ADMITTED = 16  # configurations of one process
# More than the groups that a run asks for.
MOST_GROUPS = 16
# So many partitions have a writer at once, that may stay open.
MOST_WRITERS = 64

# What a client would print in its own words, at any log level: that another one has fenced it, as
# FATAL. Whoever writes is told by an error, and says what it means; a writer that was kept open and
# is fenced by another run is nobody's trouble.
_UNPRINTED = logging.getLogger(f"{__name__}.librdkafka")
_UNPRINTED.setLevel(logging.CRITICAL + 1)

T = TypeVar("T")


class KafkaUnreachableError(ShardpostError):
    """Kafka did not answer in time."""


@dataclass
class Kafka:
    """A cluster: where it is, what its clients are configured with, and how long it may be silent.

    `bootstrap_servers` is None where it is the embedded one; `topics` are the names of the topics
    in this installation by their names in the contract. Kept between two uses: one admin client,
    and, within `keeping`, a consumer a group, and writers. Another process makes its own.
    """

    bootstrap: str
    bootstrap_servers: str | None
    client_settings: Mapping[str, str] = field(repr=False)
    timeout: float
    topics: Mapping[TopicName, str]

    # Whether its brokers run in this very process: then no other process reaches them.
    is_in_process: ClassVar[bool] = False
    # What makes clients of their configurations.
    factories: ClassVar[clients.ClientFactories] = clients.ClientFactories()

    def __post_init__(self) -> None:
        """Begin without clients."""
        # The admin client, and when it was used last.
        self._admin: tuple[AdminClient, float] | None = None
        # Those that have been answered before.
        self._connected: WeakSet[AdminClient] = WeakSet()
        self.was_there = False
        self.consumers: clients.KeptClients[clients.GroupConsumer] = clients.KeptClients(
            MOST_GROUPS, idle_seconds=IDLE_SECONDS
        )
        # Whoever opened the same id meanwhile has fenced it: its next write says so.
        self.writers: clients.KeptClients[Any] = clients.KeptClients(
            MOST_WRITERS, is_lost=methodcaller("has_lost_a_broker")
        )

    def __reduce__(self) -> tuple[type["Kafka"], tuple[object, ...]]:
        """Take the values to another process, and no clients."""
        return type(self), tuple(getattr(self, one.name) for one in fields(self))

    def topic(self, name: TopicName) -> str:
        """Return a topic's name in this installation for its name in the contract."""
        return self.topics[name]

    def config(self, **more: Any) -> dict[str, Any]:
        """Return what every librdkafka client of ours is configured with."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "shardpost",
            "log_level": 0,
            **clients.librdkafka_settings(self.client_settings),
            **more,
        }

    def admin(self) -> AdminClient:
        """Return an admin client; KafkaUnreachableError if nobody listens at Kafka's addresses.

        One question after another is asked by one client, in all threads: it is connected, and
        knows the leaders. It is not closed.
        """
        self.require_listening()
        now = time.monotonic()
        client, used_at = self._admin or (None, now)
        if client is None or now - used_at > IDLE_SECONDS:
            # Not even a topic that is asked for by name.
            client = self.factories.admin(self.config(**{"allow.auto.create.topics": False}))
        self._admin = client, now
        return client

    def forget_admin(self) -> None:
        """Use a new client for the next question: a client may keep to a former leader."""
        self._admin = None

    def connected_admin(self) -> tuple[AdminClient, bool]:
        """Return a client that has been answered before, and whether that was just now.

        One that is not connected yet when it looks for leaders, to list offsets, waits up to three
        seconds, now and then (librdkafka 2.16): too long for `shardpost doctor`.
        """
        client = self.admin()
        if client in self._connected:
            return client, False
        self.metadata()
        client = self.admin()  # another one, if the first had asked a silent broker
        self._connected.add(client)
        return client, True

    def metadata(self, most_seconds: float = math.inf) -> ClusterMetadata:
        """Return the brokers and topics that Kafka shows.

        KafkaUnreachableError if it does not within `kafka_timeout`, or within so many seconds.
        """
        seconds = min(most_seconds, self.timeout)
        first = min(seconds, OTHER_BROKER_SECONDS)
        try:
            return self.admin().list_topics(timeout=first)
        except KafkaException as error:
            if first == seconds:
                raise self.unreachable(error) from None
        self.forget_admin()
        try:
            return self.admin().list_topics(timeout=seconds - first)
        except KafkaException as error:
            raise self.unreachable(error) from None

    def with_leaders(self, ask: Callable[[], T]) -> T:
        """Return what Kafka answers; asks again while there is no leader, as Patience allows.

        After a question that timed out, by a new client. KafkaUnreachableError after that, and at
        once for any other KafkaException.
        """
        patience = Patience(self)
        while True:
            try:
                return ask()
            except KafkaException as error:
                timed_out = error.args[0].code() == KafkaError._TIMED_OUT
                is_transient = timed_out or error.args[0].code() in clients.TRANSIENT_ERRORS
                if not is_transient or patience.is_over:
                    raise self.unreachable(error) from None
                if timed_out:
                    self.forget_admin()
                time.sleep(LEADER_RETRY_SECONDS)

    def consumer(self, group: str, **more: Any) -> clients.GroupConsumer:
        """Return a consumer that commits nothing by itself and reads only what is committed."""
        self.require_listening()
        base = {
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
        return self.factories.consumer(self.config(**(base | more)))

    @contextmanager
    def kept_consumer(self, group: str, **more: Any) -> Iterator[clients.GroupConsumer]:
        """Give a consumer that may have been used before.

        It is given back without partitions assigned, and not used again after an error or if stale.
        """
        of = group, repr(more)
        reader = self.consumers.take(of) or self.consumer(group, **more)
        try:
            yield reader
        except BaseException:
            reader.close()
            raise
        self.consumers.give_back(of, reader, is_usable=not reader.is_stale)

    def producer(self) -> Producer:
        """Return a plain producer: idempotent, and placing keys as Java clients do."""
        self.require_listening()
        more = {"partitioner": "murmur2_random", "enable.idempotence": True}
        client = self.factories.producer(self.config(**more))
        with suppress(KafkaException):  # whoever flushes is told
            clients.connect(client, clients.LISTEN_SECONDS)
        return client

    def transactional_producer(self, transactional_id: str, **more: Any) -> Producer:
        """Return a producer under that id; calling init_transactions on it fences all older."""
        base = {
            "transactional.id": transactional_id,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "logger": _UNPRINTED,
        }
        return self.factories.transactional_producer(self.config(**(base | more)))

    def why_nobody_listens(self, seconds: float = clients.LISTEN_SECONDS) -> str | None:
        """Return why no server accepts a connection within `seconds`; None if one does."""
        return clients.why_nobody_listens(self.bootstrap, seconds)

    def require_listening(self) -> None:
        """Raise KafkaUnreachableError if nothing listens at Kafka's addresses, or refuses us.

        Where somebody has listened before, after GONE_SECONDS. Whether clients are refused is asked
        once a process, of a Kafka with TLS or a login.
        """
        deadline = time.monotonic() + (GONE_SECONDS if self.was_there else 0)
        while reason := self.why_nobody_listens():
            if time.monotonic() >= deadline:
                self.was_there = False
                raise self._unreachable(reason)
            time.sleep(LISTEN_AGAIN_SECONDS)
        self.was_there = True
        if SECURITY in self.client_settings and (refusal := self.why_not_admitted()):
            raise KafkaUnreachableError(refusal)

    def why_not_admitted(self) -> str | None:
        """Return why Kafka refuses our clients, and what to do; None once it has admitted one."""
        try:
            _require_admitted(tuple(sorted(self.config().items())))
        except KafkaUnreachableError as refusal:
            return str(refusal)
        return None

    def unreachable(self, error: Exception) -> KafkaUnreachableError:
        """Return the error that says that Kafka cannot be reached, or refuses us, and a cure."""
        is_asked = SECURITY in self.client_settings or self.why_nobody_listens()
        if not is_asked and (refusal := self.why_not_admitted()):
            return KafkaUnreachableError(refusal)
        reason = error.args[0].str() if error.args and hasattr(error.args[0], "str") else error
        return self._unreachable(reason)

    def _unreachable(self, reason: object) -> KafkaUnreachableError:
        to_do = "start it, or correct SHARDPOST_BOOTSTRAP_SERVERS"
        if self.bootstrap_servers is None:
            to_do = (
                "`shardpost status` says what is up, `shardpost up` starts it; for another Kafka"
                " set SHARDPOST_BOOTSTRAP_SERVERS"
            )
        return KafkaUnreachableError(
            f"Kafka at {self.bootstrap} cannot be reached ({reason}): {to_do}"
        )


@lru_cache(maxsize=MOST_ADMITTED)
def _require_admitted(config: tuple[tuple[str, Any], ...]) -> None:
    """Raise KafkaUnreachableError if Kafka refuses clients of that configuration.

    Whoever was admitted is not asked again in this process: a Spark worker has many tasks.
    """
    if reason := why_refused(dict(config), ADMISSION_SECONDS):
        to_do = "correct SHARDPOST_KAFKA__…, or the address (SHARDPOST_BOOTSTRAP_SERVERS)"
        bootstrap = dict(config)["bootstrap.servers"]
        raise KafkaUnreachableError(f"Kafka at {bootstrap} refuses this client ({reason}): {to_do}")


class Patience:
    """How long to wait for Kafka without any progress: its timeout; less if it is gone.

    A cluster that is slow listens all the time, and has the whole time.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self.progress()

    def progress(self) -> None:
        """Restart the wait: something was answered."""
        self._began = self._listened = self._asked = time.monotonic()

    @property
    def seconds(self) -> float:
        """Return the seconds without progress."""
        return time.monotonic() - self._began

    @property
    def is_over(self) -> bool:
        """Tell whether to give up; checks now and then whether anything listens."""
        if self.seconds > self._kafka.timeout:
            return True
        if time.monotonic() - self._asked < clients.LISTEN_SECONDS:
            return False
        reason = self._kafka.why_nobody_listens()
        self._asked = time.monotonic()
        if reason is None:
            self._listened = self._asked
        is_gone = self._asked - self._listened > GONE_SECONDS
        if is_gone:
            self._kafka.was_there = False  # the next request does not wait for it
        return is_gone
