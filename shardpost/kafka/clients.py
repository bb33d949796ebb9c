"""Kafka clients, configured as all of Shardpost's are.

All code gets its clients here. Before one is made, a TCP connection to Kafka is tried, so that a
broker that is gone is said within seconds; a client would retry for a minute. Where the address is
one of a broker in memory (`memory://…`), they are that one's.
"""

from typing import Any, cast

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from shardpost.errors import ShardpostError
from shardpost.kafka.listening import why_nobody_listens
from shardpost.kafka.memory.admin import MemoryAdmin
from shardpost.kafka.memory.broker import is_in_memory
from shardpost.kafka.memory.consumer import MemoryConsumer
from shardpost.kafka.memory.producer import MemoryProducer
from shardpost.kafka.memory.transactional_producer import MemoryTransactionalProducer
from shardpost.kafka.patience import LISTEN_SECONDS, why_gone
from shardpost.settings import Settings

# Of the first request of all: something listens, but may be no Kafka.
FIRST_ANSWER_SECONDS = 15.0


class KafkaUnreachableError(ShardpostError):
    """Kafka did not answer in time."""


def require_listening(settings: Settings) -> None:
    """Raise KafkaUnreachableError if nobody listens at Kafka's addresses."""
    if reason := why_gone(settings.bootstrap):
        raise KafkaUnreachableError(_said(settings, reason))


def client_config(settings: Settings, **more: Any) -> dict[str, Any]:
    """Return what every librdkafka client of ours is configured with."""
    return {
        "bootstrap.servers": settings.bootstrap,
        "client.id": "shardpost",
        "log_level": 0,
        **settings.kafka,
        **more,
    }


def admin(settings: Settings) -> AdminClient:
    """Return an admin client; KafkaUnreachableError if nobody listens at its addresses."""
    require_listening(settings)
    config = client_config(settings)
    if is_in_memory(settings.bootstrap):
        return cast(AdminClient, MemoryAdmin(config))
    return AdminClient(config)


def is_reachable(settings: Settings, seconds: float) -> bool:
    """Tell whether Kafka returns its metadata within so many seconds."""
    address = settings.bootstrap
    if not is_in_memory(address) and why_nobody_listens(address, min(seconds, LISTEN_SECONDS)):
        return False
    try:
        admin(settings).list_topics(timeout=seconds)
    except (KafkaException, KafkaUnreachableError):
        return False
    return True


def consumer(settings: Settings, group: str, **more: Any) -> Consumer:
    """Return a consumer that commits nothing by itself and reads only what is committed.

    KafkaUnreachableError if nobody listens at its addresses.
    """
    require_listening(settings)
    base = {
        "group.id": group,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
    }
    config = client_config(settings, **(base | more))
    if is_in_memory(settings.bootstrap):
        return cast(Consumer, MemoryConsumer(config))
    return Consumer(config)


def producer(settings: Settings) -> Producer:
    """Return a plain producer: idempotent, and placing keys as Java clients do.

    KafkaUnreachableError if nobody listens at its addresses.
    """
    require_listening(settings)
    more = {"partitioner": "murmur2_random", "enable.idempotence": True}
    config = client_config(settings, **more)
    if is_in_memory(settings.bootstrap):
        return cast(Producer, MemoryProducer(config))
    return Producer(config)


def transactional_producer(settings: Settings, transactional_id: str, **more: Any) -> Producer:
    """Return a producer under that id; calling init_transactions on it fences all older ones."""
    base = {
        "transactional.id": transactional_id,
        "partitioner": "murmur2_random",
        "linger.ms": 5,
    }
    config = client_config(settings, **(base | more))
    if is_in_memory(settings.bootstrap):
        return cast(Producer, MemoryTransactionalProducer(config))
    return Producer(config)


def unreachable(settings: Settings, error: Exception) -> KafkaUnreachableError:
    """Return the error that says that Kafka cannot be reached, and what to do."""
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
