"""Partitions as they are now: their ends, and what is deleted of them."""

from collections.abc import Callable, Collection
from functools import partial

from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.listed_offsets import Listed, beginnings, endings
from shardpost.kafka.topic_configs import topic_configs
from shardpost.lag.model.partition import Partition
from shardpost.lag.model.retention import Retention, retention_of
from shardpost.settings import Settings


def partitions_now(
    settings: Settings, wanted: Collection[TopicPartition], failed: dict[TopicPartition, str]
) -> dict[TopicPartition, Partition]:
    """Return each partition as it is, without what is in it; `failed` gets why one is not known.

    Ends are asked for from the lowest to the highest, so that each is at or above the one before.
    """
    found = _all_or_failed(
        failed,
        wanted,
        partial(beginnings, settings),
        partial(endings, settings, committed=True),
        partial(endings, settings, committed=False),
    )
    retentions = _retentions(settings, {partition.topic for partition in found})
    return {
        partition: Partition(low, stable, high, retentions[partition.topic])
        for partition, (low, stable, high) in found.items()
    }


def _all_or_failed(
    failed: dict[TopicPartition, str],
    wanted: Collection[TopicPartition],
    *asked: Callable[[Collection[TopicPartition]], Listed],
) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {partition: [] for partition in wanted}
    for ask in asked:
        listed = ask([*found])
        failed |= listed.failed
        found = {
            partition: [*ends, listed.found[partition].offset]
            for partition, ends in found.items()
            if partition in listed.found
        }
    return found


def _retentions(settings: Settings, topics: Collection[str]) -> dict[str, Retention]:
    configs = topic_configs(settings, topics) if topics else {}
    return {topic: retention_of(config) for topic, config in configs.items()}
