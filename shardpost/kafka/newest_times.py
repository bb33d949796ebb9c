"""When the newest record of a topic was written, by the clock of the broker that stamped it."""

from datetime import UTC, datetime

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from shardpost.kafka.clients import admin, unreachable
from shardpost.kafka.offsets import partition_counts
from shardpost.kafka.topic_configs import topic_configs
from shardpost.settings import Settings

NONE = -1


def newest_time(settings: Settings, topic: str) -> datetime | None:
    """Return the latest time that the broker gave to a record of the topic.

    None if it has no records, or has the times of their producers. ShardpostError for a topic that
    does not exist.
    """
    count = partition_counts(settings, [topic])[topic]
    if topic_configs(settings, [topic])[topic].get("message.timestamp.type") != "LogAppendTime":
        return None
    latest: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
    asked = {confluent_kafka.TopicPartition(topic, partition): latest for partition in range(count)}
    client = admin(settings)  # it has to outlive what it asks for
    try:
        futures = client.list_offsets(asked, request_timeout=settings.kafka_timeout)
        newest = max(int(future.result().timestamp) for future in futures.values())
    except KafkaException as error:
        raise unreachable(settings, error) from None
    return None if newest == NONE else datetime.fromtimestamp(newest / 1000, UTC)
