"""The ids of topics: what tells one that was deleted and recreated from the one before.

Kafka gives each topic an id (KIP-516). A topic that was restored or mirrored in another cluster has
another id as well.
"""

from collections.abc import Collection, Mapping

from confluent_kafka import TopicCollection

from shardpost.errors import ShardpostError
from shardpost.kafka.clients import admin
from shardpost.kafka.offsets import with_leaders
from shardpost.settings import Settings

# What a broker answers that gives no ids (before Kafka 2.8).
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class RecreatedTopicError(ShardpostError):
    """A topic is another one than that of which something is known."""


def topic_ids(settings: Settings, topics: Collection[str]) -> dict[str, str]:
    """Return the id of each topic, as Kafka's own tools print it; none where a broker gives none.

    KafkaUnreachableError if Kafka does not describe one of them in time.
    """
    return with_leaders(settings, lambda: _described(settings, topics))


def _described(settings: Settings, topics: Collection[str]) -> dict[str, str]:
    if not topics:
        return {}
    client = admin(settings)  # it has to outlive what it asks for
    wanted = TopicCollection(sorted(set(topics)))
    futures = client.describe_topics(wanted, request_timeout=settings.kafka_timeout)
    found = {topic: str(future.result().topic_id) for topic, future in futures.items()}
    return {topic: found[topic] for topic in topics if found[topic] != _NO_ID}


def changed_topics(expected: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with each topic that has another id than expected.

    A topic whose id was not known before, or is not known now, is not among them.
    """
    return {
        topic: f"topic {topic}: expected the id {expected[topic]}, found {found[topic]}"
        for topic in expected
        if topic in found and found[topic] != expected[topic]
    }


def require_same_topics(
    expected: Mapping[str, str], found: Mapping[str, str], *, advice: str
) -> None:
    """Raise RecreatedTopicError, naming all, if a topic has another id; `advice` says what to do.

    {topic: id}, as `topic_ids` returns them.
    """
    changed = changed_topics(expected, found)
    if changed:
        raise RecreatedTopicError(
            f"{'; '.join(changed.values())}: it was deleted and recreated, or is that of another"
            f" cluster. {advice}"
        )
