"""Kafka through confluent-kafka: clients, watermarks, and reading a partition to its end.

Watermarks are asked for with read_uncommitted, since under read_committed librdkafka gives the last
stable offset; an end may be a transaction marker, so readers stop by position and never by "last
record seen".
"""

from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaException,
    Producer,
)
from confluent_kafka.admin import AdminClient

from shardpost.errors import ShardpostError
from shardpost.settings import Settings

CONTACT_SECONDS = 15.0  # for the first answer: who asks wants to know soon that nobody is there


class KafkaUnreachableError(ShardpostError):
    """Kafka did not answer in time."""


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
    """Return an admin client."""
    return AdminClient(client_config(settings))


def answers(settings: Settings, wait: float) -> bool:
    """Tell whether Kafka gives its metadata within so many seconds."""
    try:
        admin(settings).list_topics(timeout=wait)
    except KafkaException:
        return False
    return True


def consumer(settings: Settings, group: str, **more: Any) -> Consumer:
    """Return a consumer that commits nothing by itself and reads only what is committed."""
    base = {
        "group.id": group,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
    }
    return Consumer(client_config(settings, **(base | more)))


def producer(settings: Settings) -> Producer:
    """Return a plain producer: idempotent, and placing keys as Java clients do."""
    more = {"partitioner": "murmur2_random", "enable.idempotence": True}
    return Producer(client_config(settings, **more))


def transactional_producer(settings: Settings, transactional_id: str, **more: Any) -> Producer:
    """Return a producer under that id; calling init_transactions on it fences all older ones."""
    return Producer(
        client_config(
            settings,
            **{
                "transactional.id": transactional_id,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                **more,
            },
        )
    )


def unreachable(settings: Settings, error: Exception) -> KafkaUnreachableError:
    """Return the error that says that Kafka does not answer, and what to do."""
    reason = error.args[0].str() if error.args and hasattr(error.args[0], "str") else error
    return KafkaUnreachableError(
        f"Kafka at {settings.bootstrap} does not answer ({reason}): start it with `shardpost up`,"
        " or set SHARDPOST_BOOTSTRAP_SERVERS"
    )
