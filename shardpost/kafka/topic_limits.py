"""How large the records of a topic may be, and how a producer is configured to write such ones.

Asked of Kafka and never assumed: a topic may be older than its declaration.
"""

from typing import Any

from shardpost.errors import ShardpostError
from shardpost.kafka.topic_configs import TopicConfig, topic_configs
from shardpost.settings import Settings

LARGEST = "max.message.bytes"
# Larger requests are refused by clients (100 MB) and brokers (100 MiB) unless told otherwise.
MOST_BYTES = 64 << 20
# librdkafka's default: smaller records go together into batches of at most so many bytes.
BATCH_SIZE = 1_000_000
# What a client may have to send beside one record that is as large as its topic accepts.
REQUEST_BYTES = 64 << 10


def topic_config(settings: Settings, topic: str) -> TopicConfig:
    """Return what is in force for a topic; ShardpostError if Kafka does not say."""
    config = topic_configs(settings, [topic])[topic]
    if not config.get(LARGEST):
        raise ShardpostError(
            f"{topic}: expected Kafka to say its {LARGEST}, found nothing: allow DescribeConfigs"
        )
    return config


def largest_batch(config: TopicConfig) -> int:
    """Return how many bytes a batch of a topic may have; a batch may hold one record."""
    return min(int(config[LARGEST] or 0), MOST_BYTES)


def producer_config(config: TopicConfig) -> dict[str, Any]:
    """Return the settings of a producer that writes records as large as a topic accepts."""
    largest = largest_batch(config)
    limits: dict[str, Any] = {
        "message.max.bytes": max(largest + REQUEST_BYTES, BATCH_SIZE),
        "batch.size": min(BATCH_SIZE, largest),
    }
    is_zstd = config.get("compression.type") == "zstd"
    return limits | ({"compression.type": "zstd"} if is_zstd else {})
