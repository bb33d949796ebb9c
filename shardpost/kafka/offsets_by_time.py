"""Where the records since a time begin."""

from datetime import datetime

import confluent_kafka
from confluent_kafka import KafkaException

from shardpost.kafka.clients import consumer, unreachable
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import watermarks_of
from shardpost.settings import Settings


def first_since(settings: Settings, partition: TopicPartition, at: datetime) -> int:
    """Return the offset of the first record of a partition with that timestamp or a later one.

    The end of the partition if there is none. What lies above may have earlier timestamps.
    """
    _, end = watermarks_of(settings, partition, committed=False)
    asked = confluent_kafka.TopicPartition(*partition, int(at.timestamp() * 1000))
    # What an open transaction hides counts too: it may be read by the time that the answer is used.
    reader = consumer(settings, "shardpost-reader", **{"isolation.level": "read_uncommitted"})
    try:
        [found] = reader.offsets_for_times([asked], timeout=settings.kafka_timeout)
    except KafkaException as error:
        raise unreachable(settings, error) from None
    finally:
        reader.close()
    return end if found.offset < 0 else int(found.offset)
