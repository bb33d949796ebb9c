"""The effective configuration of topics: what is set on them, else the broker's defaults."""

from collections.abc import Collection, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from shardpost.errors import ShardpostError
from shardpost.kafka.clients import admin
from shardpost.kafka.offsets import with_leaders
from shardpost.settings import Settings

# {setting: value}; a value is None where Kafka does not say it.
TopicConfig = Mapping[str, str | None]

_NOT_ALLOWED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


def topic_configs(settings: Settings, topics: Collection[str]) -> dict[str, TopicConfig]:
    """Return {topic: its effective configuration}.

    KafkaUnreachableError if Kafka does not say in time; ShardpostError if it is not allowed to.
    """
    return with_leaders(settings, lambda: _allowed(settings, topics))


def _allowed(settings: Settings, topics: Collection[str]) -> dict[str, TopicConfig]:
    try:
        return _described(settings, topics)
    except KafkaException as error:
        if error.args[0].code() not in _NOT_ALLOWED:
            raise
        raise ShardpostError(
            f"Kafka at {settings.bootstrap} does not say how topics are configured"
            f" ({error.args[0].str()}): allow DescribeConfigs on topic(s)"
            f" {', '.join(sorted(topics))} for this user"
        ) from None


def _described(settings: Settings, topics: Collection[str]) -> dict[str, TopicConfig]:
    client = admin(settings)  # it has to outlive what it asks for
    wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    futures = client.describe_configs(wanted, request_timeout=settings.kafka_timeout)
    return {
        resource.name: {name: entry.value for name, entry in future.result().items()}
        for resource, future in futures.items()
    }
