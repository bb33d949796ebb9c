"""Which partitions of topics have a leader, without which nobody can read them."""

from collections.abc import Iterable

from confluent_kafka import KafkaException

from shardpost.kafka.clients import admin, unreachable
from shardpost.settings import Settings


def partition_leaders(settings: Settings, topics: Iterable[str]) -> dict[str, dict[int, bool]]:
    """Return {topic: {partition: whether it has a leader}} of those topics that exist."""
    try:
        known = admin(settings).list_topics(timeout=settings.kafka_timeout).topics
    except KafkaException as error:
        raise unreachable(settings, error) from None
    return {
        topic: {number: one.leader >= 0 for number, one in sorted(known[topic].partitions.items())}
        for topic in topics
        if topic in known
    }
