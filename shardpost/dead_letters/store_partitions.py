"""The partitions of the topic `dead-letters` that hold anything."""

from shardpost.kafka import offsets
from shardpost.kafka.coordinates import TopicPartition
from shardpost.settings import Settings


def partitions_with_records(settings: Settings) -> list[TopicPartition]:
    """Return those with any record, committed or not."""
    store = settings.topic("dead-letters")
    counts = offsets.partition_counts(settings, [store])
    watermarks = offsets.watermarks(settings, counts, committed=False)[store]
    return [
        TopicPartition(store, partition)
        for partition, (low, high) in watermarks.items()
        if low < high
    ]
